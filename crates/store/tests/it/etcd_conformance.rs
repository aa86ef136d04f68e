//! The suite on real etcds, an old one and a new one.

mod old {
    use crate::conformance::conformance_tests;
    use crate::etcd::{Cluster, Release};

    conformance_tests!(Cluster::single(Release::Old).await);
}

mod new {
    use crate::conformance::conformance_tests;
    use crate::etcd::{Cluster, Release};

    conformance_tests!(Cluster::single(Release::New).await);
}
