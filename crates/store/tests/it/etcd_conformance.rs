//! The conformance suite on real etcd, an old release and a new one.

mod old {
    use crate::conformance::conformance_tests;
    use crate::etcd_cluster::{EtcdCluster, EtcdRelease};

    conformance_tests!(EtcdCluster::single(EtcdRelease::Old).await);
}

mod new {
    use crate::conformance::conformance_tests;
    use crate::etcd_cluster::{EtcdCluster, EtcdRelease};

    conformance_tests!(EtcdCluster::single(EtcdRelease::New).await);
}
