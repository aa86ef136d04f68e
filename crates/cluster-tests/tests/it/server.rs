//! One server process: start, stop, storage, certificates, overload.

mod certificate_reload;
mod overload;
mod process;
mod storage;
mod unread_responses;
