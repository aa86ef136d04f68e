//! Identity in headers: removed from requests of clients, and written for peers.

use access::User;
use forward::{ForwardedUser, UnsendableUser};
use http::header::{HeaderMap, HeaderName};
use smallvec::SmallVec;

/// Removes all headers whose lowercase name is unwanted.
pub fn remove_headers(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let unwanted: SmallVec<[HeaderName; 8]> =
        headers.keys().filter(|name| is_unwanted(name.as_str())).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

/// Converts a user for the headers of a forwarded request.
pub fn to_forwarded_user(user: &User) -> Result<ForwardedUser, UnsendableUser> {
    let User { name, uid, groups, extra } = user;
    let extra = extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (&**key, &**value)));
    ForwardedUser::new(name, uid, groups.iter().map(|group| &**group), extra)
}
