//! Medians of repeated runs.
//!
//! Pure work is timed by the processor time of its thread: on a machine that does other things as well, the clock on the wall
//! tells more about those.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Effort;

/// One sample lasts about this long, so that the clock's own cost vanishes.
const SAMPLE_TIME: Duration = Duration::from_millis(20);
/// An odd number, so that the median is a sample.
const SAMPLES: usize = 21;
/// A bound for operations so cheap that the sample time would need more.
const ITERATIONS_MAX: u64 = 10_000_000;

/// The median time of one call.
pub(crate) fn median_time<T>(effort: Effort, mut work: impl FnMut() -> T) -> Duration {
    let once = time_iterations(1, &mut work);
    if effort == Effort::Quick {
        return once;
    }
    let iterations = (SAMPLE_TIME.as_nanos() / once.as_nanos().max(1)).clamp(1, u128::from(ITERATIONS_MAX)) as u64;
    let mut samples: Vec<Duration> = (0..SAMPLES).map(|_| time_iterations(iterations, &mut work)).collect();
    let nanos = median(&mut samples).as_nanos() as f64 / iterations as f64;
    Duration::from_secs_f64(nanos / 1e9)
}

/// The median time of one call on something that must be made for each call and is not part of the time.
pub(crate) fn median_time_with_input<I, T>(effort: Effort, make: impl Fn() -> I, work: impl Fn(&I) -> T) -> Duration {
    let samples = if effort == Effort::Quick { 1 } else { SAMPLES };
    let mut samples: Vec<Duration> = (0..samples)
        .map(|_| {
            let input = make();
            time_iterations(1, &mut || work(&input))
        })
        .collect();
    median(&mut samples)
}

/// The middle one. An empty list has no median and is a mistake of the caller.
pub(crate) fn median(samples: &mut [Duration]) -> Duration {
    percentile(samples, 50.0)
}

/// The sample below which `percent` of all lie.
pub(crate) fn percentile(samples: &mut [Duration], percent: f64) -> Duration {
    samples.sort_unstable();
    percentile_of_sorted(samples, percent)
}

/// The same of samples that are sorted.
pub(crate) fn percentile_of_sorted(samples: &[Duration], percent: f64) -> Duration {
    assert!(!samples.is_empty(), "a percentile needs samples");
    let rank = (percent / 100.0 * (samples.len() - 1) as f64).round() as usize;
    samples[rank.min(samples.len() - 1)]
}

/// The middle one of rates.
pub(crate) fn median_rate(mut rates: Vec<f64>) -> f64 {
    assert!(!rates.is_empty(), "a median needs samples");
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn time_iterations<T>(iterations: u64, work: &mut impl FnMut() -> T) -> Duration {
    let start = thread_time();
    for _ in 0..iterations {
        std::hint::black_box(work());
    }
    thread_time() - start
}

fn thread_time() -> Duration {
    clock_time(ClockId::ThreadCPUTime)
}

/// The same moment in every process of the machine.
pub(crate) fn monotonic_time() -> Duration {
    clock_time(ClockId::Monotonic)
}

fn clock_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
