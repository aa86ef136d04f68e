//! The messages of etcd's v3 API that we send and read, and the calls they belong to.
//!
//! Written by hand after etcd's `rpc.proto` and `kv.proto`, whose names and numbers these are; what we do not use is left
//! out, and unknown fields are skipped when reading. Keys and values are shared slices of the received message.

use bytes::Bytes;

/// A request, the answer that belongs to it, and how it may be called.
pub(super) trait EtcdRequest: prost::Message + Clone + 'static {
    /// What etcd answers.
    type Response: prost::Message + Default + 'static;
    /// The method, as in the path of the HTTP request.
    const PATH: &'static str;
    /// Whether it may be sent again when its answer was lost.
    const RETRY: RetrySafety;
    /// The largest answer that is read. Whoever sets a smaller one than [`RESPONSE_BYTES_MAX`] can ask for less instead.
    const RESPONSE_BYTES_MAX: usize = RESPONSE_BYTES_MAX;
}

/// Whether doing something twice is the same as doing it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// Nothing is lost or gained by doing it again.
    Safe,
    /// It may be done once only.
    Unsafe,
}

/// The largest message that etcd itself sends: its gRPC server counts in 31 bits.
pub(super) const RESPONSE_BYTES_MAX: usize = i32::MAX as usize;

/// The largest page of a range that is read. A page that is larger is asked for again in smaller ones, so this bounds the
/// memory of one read; it is well above one value, which etcd keeps below 1.5 MiB unless it is told otherwise.
pub(super) const PAGE_BYTES_MAX: usize = 64 << 20;

macro_rules! calls {
    ($($request:ty => $response:ty, $path:literal, $retry:ident $(, $bytes_max:expr)?;)*) => {
        $(impl EtcdRequest for $request {
            type Response = $response;
            const PATH: &'static str = $path;
            const RETRY: RetrySafety = RetrySafety::$retry;
            $(const RESPONSE_BYTES_MAX: usize = $bytes_max;)?
        })*
    };
}

calls! {
    RangeRequest => RangeResponse, "/etcdserverpb.KV/Range", Safe, PAGE_BYTES_MAX;
    TxnRequest => TxnResponse, "/etcdserverpb.KV/Txn", Unsafe;
    CompactionRequest => CompactionResponse, "/etcdserverpb.KV/Compact", Safe;
    // A lease without keys changes nothing and goes away by itself.
    LeaseGrantRequest => LeaseGrantResponse, "/etcdserverpb.Lease/LeaseGrant", Safe;
    StatusRequest => StatusResponse, "/etcdserverpb.Maintenance/Status", Safe;
    WatchRequest => WatchResponse, "/etcdserverpb.Watch/Watch", Safe;
    LeaseKeepAliveRequest => LeaseKeepAliveResponse, "/etcdserverpb.Lease/LeaseKeepAlive", Safe;
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(super) operation: Option<Operation>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// The answer to an operation of a transaction; only those to ranges hold something that we read.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

/// A comparison for equality (0, the default) of a mod revision.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Compare {
    /// [`COMPARE_MOD_REVISION`].
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    /// Part of a oneof in etcd, so that 0, which stands for an absent key, is sent as well.
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
}

/// The target of a [`Compare`] that looks at the mod revision.
pub(super) const COMPARE_MOD_REVISION: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CompactionResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchRequestUnion", tags = "1, 3")]
    pub(super) request_union: Option<WatchRequestUnion>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum WatchRequestUnion {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    #[prost(bool, tag = "8")]
    pub(super) fragment: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub(super) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchEvent {
    /// 0: put; [`EVENT_DELETE`].
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

/// The kind of a [`WatchEvent`] that removes a key.
pub(super) const EVENT_DELETE: i32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseKeepAliveResponse {
    /// In seconds from now; 0: the lease is gone.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}
