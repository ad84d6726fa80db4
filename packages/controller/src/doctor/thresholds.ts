/**
 * The numbers of the run doctor's rules. Those with a source are taken over from it; the others are ours, chosen so that
 * the example of the quickstart, which learns well, gives no finding.
 */

/** Steps that most rules look at: the newest ones. */
export const WINDOW_STEPS = 10;
/** Fewer steps than this say nothing about tuning. */
export const LEAST_STEPS = 3;

// Liveness.

/** Leases without a heartbeat: a worker that is alive has renewed its lease in the meantime. */
export const SILENT_LEASES = 2;
export const UNCLAIMED_SECONDS = 120;
/** A step is stalled when it is open for longer than so many medians and so many seconds (miles, `advisory.py`). */
export const STALLED_MEDIANS = 6;
export const STALLED_SECONDS = 1800;
/** Closed steps that a median needs (miles). */
export const STALLED_LEAST_SAMPLES = 3;
/** Share of rollouts that were cut off, and how many and how recent they must be (miles). */
export const ABORTED_SHARE = 0.05;
export const ABORTED_LEAST = 100;
export const ABORTED_MINUTES = 30;
/** Share of rollouts that failed (prime-rl's documentation calls more than 5 % a smell). */
export const ERRORED_SHARE = 0.05;
/** Below so many rollouts one failure alone would be an alarm. */
export const ERRORED_LEAST = 40;
export const ERRORED_STEPS = 5;
/** Steps in a row without an update. */
export const SKIPPED_UPDATES = 5;
/** Rollouts of the step under way without a single reward. */
export const UNREWARDED_ROLLOUTS = 16;
/** Hand-overs to another worker. */
export const LOST_WORKERS = 3;

// Tuning.

/** Share of groups whose rewards are all the same, or that all pass, or that all fail (miles: zero-std groups). */
export const SAME_GROUPS_SHARE = 0.5;
/** Share of truncated rollouts (miles). */
export const TRUNCATED_SHARE = 0.25;
/** Entropy that is left of that of the first steps. */
export const ENTROPY_LEFT = 0.1;
/** Share of groups that never pass, and nats per token, from which on a policy does the same each time where it fails. */
export const STUCK_NEVER_SHARE = 0.05;
export const STUCK_ENTROPY = 0.05;
/** Mean divergence of sampler and trainer, in nats per token (Tinker's documentation: stable below 0.01). */
export const SAMPLER_TRAINER_KL = 0.01;
export const CLIP_FRACTION = 0.3;
/** Mean staleness as a share of its cap. */
export const STALENESS_OF_CAP = 0.9;
/** Share of a step in which the trainer waits for rollouts, when they run beside it. */
export const WAITING_SHARE = 0.5;
/** Share of a step that rolling out takes, when nothing runs beside it. */
export const ROLLING_OUT_SHARE = 0.8;
/** Steps in which a reward must rise. */
export const FLAT_STEPS = 20;
/** A slope of less than so many standard errors is none. */
export const FLAT_T = 2;
/** A pass rate from which on nothing more is to be expected. */
export const LEARNED_PASS_RATE = 0.95;
/** How far, in standard errors of a share, validation may be below its best. */
export const VALIDATION_FALL_ERRORS = 2;
export const VALIDATION_LEAST = 3;
/** Updates in a row whose gradient was clipped. */
export const CLIPPED_GRADIENTS = 10;
/** prime-rl's documentation: a batch of 64 rollouts at least, groups of 8 at least, 16 to 32 usual. */
export const LEAST_BATCH = 64;
export const LEAST_GROUP = 8;
