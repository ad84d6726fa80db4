/** The version of this package, as written into trajectories; a test keeps it equal to package.json. */
export const SDK_VERSION = "0.1.0";
