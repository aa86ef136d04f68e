//! Medians of repeated runs.
//!
//! Pure work is timed by thread CPU time, because wall time includes other load of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Effort;

/// Duration of one sample, long enough to make the cost of the clock negligible.
const SAMPLE_TIME: Duration = Duration::from_millis(20);
/// Odd, so that the median is a sample.
const SAMPLES: usize = 21;
/// Limit for operations that are very cheap.
const ITERATIONS_MAX: u64 = 10_000_000;

/// Median time of one call.
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

/// Median time of one call; creating its input with `make` is not timed.
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

/// The median. Panics on an empty list.
pub(crate) fn median(samples: &mut [Duration]) -> Duration {
    percentile(samples, 50.0)
}

/// The value at a percentile; sorts the samples.
pub(crate) fn percentile(samples: &mut [Duration], percent: f64) -> Duration {
    samples.sort_unstable();
    percentile_of_sorted(samples, percent)
}

/// Like [`percentile`], for sorted samples.
pub(crate) fn percentile_of_sorted(samples: &[Duration], percent: f64) -> Duration {
    assert!(!samples.is_empty(), "a percentile needs samples");
    let rank = (percent / 100.0 * (samples.len() - 1) as f64).round() as usize;
    samples[rank.min(samples.len() - 1)]
}

/// Median of rates.
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

/// System-wide monotonic clock, comparable between processes.
pub(crate) fn monotonic_time() -> Duration {
    clock_time(ClockId::Monotonic)
}

fn clock_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
