//! The rule for indented JSON.

use crate::query;

/// Reports whether the query or the user agent asks for indented JSON. The query parameter decides if it has a value;
/// otherwise curl, wget and browsers get it. A media type with `pretty=1` asks for it as well, see
/// [`super::NegotiatedMediaType`].
pub fn is_pretty_print(query: &str, user_agent: &str) -> bool {
    if query.contains("pretty")
        && let Some(value) = query::first_value(query, "pretty").filter(|value| !value.is_empty())
    {
        return matches!(&*value, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| user_agent.starts_with(tool))
}
