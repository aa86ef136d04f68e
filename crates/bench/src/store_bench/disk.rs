//! Writes per second that the disk achieves with one sync each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::StoreBenchSizes;
use super::load::VALUE_BYTES;

/// Writes wrap around within this size, like a reused log file.
const FILE_BYTES: u64 = 4 << 20;

/// Samples of writes per second, each followed by fdatasync. The file is allocated before, so that a sync only flushes
/// one write: the upper limit for one sync per write.
pub(super) fn measure_synced_writes(folder: &Path, sizes: StoreBenchSizes) -> anyhow::Result<Vec<f64>> {
    let file = File::create(folder.join("synced"))?;
    file.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    let value = [7; VALUE_BYTES];
    Ok((0..sizes.samples).map(|_| sample_rate(&file, &value, sizes)).collect::<Result<_, _>>()?)
}

fn sample_rate(file: &File, value: &[u8], sizes: StoreBenchSizes) -> std::io::Result<f64> {
    let start = Instant::now();
    let mut writes: u64 = 0;
    while start.elapsed() < sizes.sample {
        file.write_all_at(value, writes * value.len() as u64 % FILE_BYTES)?;
        file.sync_data()?;
        writes += 1;
    }
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}
