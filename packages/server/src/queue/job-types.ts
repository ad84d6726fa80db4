/** Every queue of the platform. The schema of a queue's payload stands here beside its name. */
export const QUEUES: readonly string[] = [];
