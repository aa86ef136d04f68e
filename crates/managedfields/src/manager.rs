//! The identity of a writer.

use api::quote::is_printable;
use api::time::Time;

/// Limit of a manager's name in bytes.
pub const MANAGER_LENGTH_MAX: usize = 128;

/// Manager, version, subresource and time of a write.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager<'a> {
    /// Name as derived by [`manager_name`].
    pub name: &'a str,
    /// `apiVersion` of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Subresource, such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// Time of the write.
    pub now: Time,
}

/// Manager name: the request's `fieldManager`, else the printable characters of the user agent up to the first slash,
/// limited to [`MANAGER_LENGTH_MAX`].
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for character in product.chars().filter(|character| is_printable(*character)) {
        if name.len() + character.len_utf8() > MANAGER_LENGTH_MAX {
            break;
        }
        name.push(character);
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}
