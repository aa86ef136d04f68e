//! One server process: start, stop, storage, certificates, overload.

mod certificate_reload;
mod health_pages;
mod overload;
mod process;
mod storage;
mod unread_responses;
