export { faultText, MAX_FAULTS, type DatasetFault } from "./fault.ts";
export {
  checkDatasetSize,
  datasetFormatOf,
  MAX_DATASET_BYTES,
  MIN_DATASET_ROWS,
  readDatasetFile,
  validateDataset,
  type DatasetBytes,
  type DatasetFormat,
  type DatasetReport,
  type DatasetSource,
} from "./validate.ts";
