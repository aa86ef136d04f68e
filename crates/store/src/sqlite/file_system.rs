//! Detection of network file systems, which cannot hold a store.
//!
//! Processes that share the database use shared memory and file locks. Network file systems implement neither as SQLite
//! needs it, and the damage shows late and silently, so they are rejected by name.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Type names as in the mount table. FUSE file systems are listed one by one: `fuse.fuse-overlayfs` and `fuseblk` are
/// local.
const NETWORK_FILE_SYSTEMS: [&str; 30] = [
    "9p",
    "acfs",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.cvmfs",
    "fuse.davfs2",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.goofys",
    "fuse.juicefs",
    "fuse.mount-s3",
    "fuse.mountpoint-s3",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.smbnetfs",
    "fuse.sshfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "orangefs",
    "smb3",
    "smbfs",
];

/// The type of the network file system that holds `folder`; `None` if it is local.
pub(super) fn network_file_system(folder: &Path) -> io::Result<Option<String>> {
    let device = fs::metadata(folder)?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mount_type(&mounts, &device).filter(|name| NETWORK_FILE_SYSTEMS.contains(name)).map(str::to_owned))
}

/// The mount type of a device, from the format of `proc_pid_mountinfo(5)`: the third field is the device, and the type
/// follows a lone dash.
fn mount_type<'a>(mounts: &'a str, device: &str) -> Option<&'a str> {
    let is_on_device = |line: &&str| line.split(' ').nth(2) == Some(device);
    let line = mounts.lines().find(is_on_device)?;
    line.split_once(" - ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 25 0:27 / /mnt/nas rw,relatime shared:8 master:2 - nfs4 nas:/export rw,vers=4.2
32 25 0:28 / /mnt/my - share rw - fuse.sshfs me@host: rw
33 25 0:29 / /mnt/c rw - 9p drvfs rw
34 25 0:30 / /home rw - btrfs /dev/sdb rw
35 25 0:31 / /merged rw - fuse.fuse-overlayfs overlay rw";

    #[track_caller]
    fn check(device: &str, name: Option<&str>, is_refused: bool) {
        let found = mount_type(MOUNTS, device);
        assert_eq!((found, found.is_some_and(|name| NETWORK_FILE_SYSTEMS.contains(&name))), (name, is_refused));
    }

    #[test]
    fn network_file_systems_are_recognized_by_mount_type() {
        check("254:0", Some("ext4"), false);
        check("0:27", Some("nfs4"), true);
        check("0:29", Some("9p"), true);
        check("0:30", Some("btrfs"), false);
        check("0:31", Some("fuse.fuse-overlayfs"), false);
        check("9:9", None, false);
    }

    #[test]
    fn temp_dir_is_not_on_a_network_file_system() {
        assert_eq!(network_file_system(&std::env::temp_dir()).unwrap(), None);
    }
}
