//! Addresses and ports of services: which are free, which one a service gets, and how allocations are recorded.
//!
//! Two records exist beside the services themselves. Releases up to 1.33 keep a bitmap per range ([`RangeAllocation`]);
//! from 1.33 on each address is an IPAddress object. Node ports are always in a bitmap. [`ServiceAllocator`] decides on
//! one state of these records and collects what the caller must write in the transaction of the service.

mod bitmap;
mod families;
mod range;
mod repair;
mod service;

pub use bitmap::{Bitmap, RangeAllocation, RangeAllocationError};
pub use families::{ClusterFamilies, IpFamily};
pub use range::{AddressRange, PortRange};
pub use repair::{
    Leaks, ServiceHoldings, ip_address, is_leaked_record, is_wrong_record, parent_service, repair_bitmap,
};
pub use service::{AllocationError, Recorded, ServiceAllocator, ServiceChange};

#[cfg(test)]
mod tests;
