//! The messages of etcd's v3 API that the backend uses, and the calls they belong to.
//!
//! Written by hand after etcd's `rpc.proto` and `kv.proto`, with their names and tags. Unused fields are left out, and
//! unknown fields are skipped on decoding. Keys and values are slices of the received message.

use bytes::Bytes;

/// A request message with its response type, path and retry rule.
pub(super) trait EtcdRequest: prost::Message + Clone + 'static {
    type Response: prost::Message + Default + 'static;
    /// The gRPC method as the path of the HTTP request.
    const PATH: &'static str;
    /// Whether the request may be repeated after a lost response.
    const RETRY: RetrySafety;
    /// The largest response to decode. Callers of a request with a smaller limit than [`RESPONSE_BYTES_MAX`] must be
    /// able to ask for less.
    const RESPONSE_BYTES_MAX: usize = RESPONSE_BYTES_MAX;
}

/// Whether executing a request twice equals executing it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetrySafety {
    Safe,
    Unsafe,
}

/// The largest message that etcd sends: its gRPC server has 31-bit lengths.
pub(super) const RESPONSE_BYTES_MAX: usize = i32::MAX as usize;

/// The largest page of a range to decode; a larger page is requested again in smaller ones. Bounds the memory of one
/// read, and is well above one value, which etcd limits to 1.5 MiB by default.
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
    // A lease without keys changes nothing and expires by itself.
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
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    /// The number of puts since the key was created.
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
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
    #[prost(oneof = "Operation", tags = "1, 2, 3, 4")]
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
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

/// The response to one operation of a transaction; those of puts and deletions are not read.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
    #[prost(message, optional, tag = "4")]
    pub(super) txn: Option<TxnResponse>,
}

/// A comparison for equality, which is the default result 0.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Compare {
    /// Which field of the oneof is compared.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    #[prost(oneof = "CompareTarget", tags = "4, 5, 6, 7")]
    pub(super) value: Option<CompareTarget>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum CompareTarget {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

impl Compare {
    pub(super) fn new(key: Bytes, value: CompareTarget) -> Self {
        let target = match value {
            CompareTarget::Version(_) => 0,
            CompareTarget::CreateRevision(_) => 1,
            CompareTarget::ModRevision(_) => 2,
            CompareTarget::Value(_) => 3,
        };
        Self { target, key, value: Some(value) }
    }
}

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
    /// 0: put, or [`EVENT_DELETE`].
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

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
    /// In seconds; 0: the lease is gone.
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
