//! Pinned etcd packages, without and with progress requests, for each distribution.
//!
//! The chosen releases rarely or never change. A package of the pinned version must have the pinned checksum.

use crate::tools::apt_sources::DistributionFamily;

/// One package of one release.
pub(crate) struct EtcdPin {
    pub(crate) family: DistributionFamily,
    pub(crate) suite: &'static str,
    pub(crate) version: &'static str,
    /// Architecture and SHA-256 of the package file.
    pub(crate) checksums: &'static [(&'static str, &'static str)],
}

/// Without usable progress requests, which were added in 3.4.31 and 3.5.13.
pub(crate) const OLD: &[EtcdPin] = &[
    EtcdPin {
        family: DistributionFamily::Debian,
        suite: "bookworm",
        version: "3.4.23-4+b4",
        checksums: &[
            ("amd64", "3a9445d4560ad6de1c375756b2a17d97713df44cbd20a658c871fe108af7ef5d"),
            ("arm64", "821e59be145fa42bd72b3e003d275640947c3d824b4c06b1ed2a01a631d555a1"),
        ],
    },
    EtcdPin {
        family: DistributionFamily::Ubuntu,
        suite: "noble",
        version: "3.4.30-1build1",
        checksums: &[("amd64", "ad77c6a8e310f108d485483acb783ba6bd417db769fd54931fe0688e292a91cd")],
    },
];

/// With progress requests. The second entry of a family is for mirrors that lack the first.
pub(crate) const NEW: &[EtcdPin] = &[
    EtcdPin {
        family: DistributionFamily::Debian,
        suite: "trixie",
        version: "3.5.16-4",
        checksums: &[
            ("amd64", "0875921bb0d023f2af9b8e15cdfbe417a03e65731345fb832c40f9c2dd72967b"),
            ("arm64", "5e21469a4f59f1cb2ed7af9c6eb9dda7d9734809c011cfa8a39b34f82a161a32"),
        ],
    },
    EtcdPin {
        family: DistributionFamily::Debian,
        suite: "forky",
        version: "3.5.30-2",
        checksums: &[
            ("amd64", "11a4f7e350c5020b83edff5160a6063d4e56ac9cd014d21ce8916378bf96de79"),
            ("arm64", "c9f0208925c51d44ba026367930c67a1fd2bef12d162e8b99d249f42242f7100"),
        ],
    },
    EtcdPin {
        family: DistributionFamily::Ubuntu,
        suite: "resolute",
        version: "3.5.16-10",
        checksums: &[("amd64", "d78873854a6d31341853fe5b5dc75e128e53a7c00a1146c33180fdbdd14abbb2")],
    },
    EtcdPin {
        family: DistributionFamily::Ubuntu,
        suite: "questing",
        version: "3.5.16-4",
        checksums: &[("amd64", "f01dbdc0d2c2bfac24f302e09fde20c6d508a47719dd544abd39bf7045495343")],
    },
];
