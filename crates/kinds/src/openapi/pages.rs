//! Documents of pages that describe the server: discovery, version, OpenID.

use schema::openapi::{OpenApiOperation, ServerPage};

use super::paths::{capitalize, group_words};

/// A page: the path of its document below `/openapi/v3/`, and its operation.
pub(super) struct PageDocument {
    pub(super) path: String,
    pub(super) operation: OpenApiOperation<'static>,
}

impl PageDocument {
    /// The path in the document.
    pub(super) fn url_path(&self) -> String {
        format!("/{}/", self.path)
    }
}

/// The pages of a server with these groups, of which the core group has an empty name.
pub(super) fn pages<'g>(groups: impl Iterator<Item = &'g str>) -> Vec<PageDocument> {
    let page = |path: &str, page: ServerPage, name: &str, tag: &str| PageDocument {
        path: path.to_owned(),
        operation: OpenApiOperation::page(page, name.to_owned(), tag.to_owned()),
    };
    let mut pages = vec![
        page(
            ".well-known/openid-configuration",
            ServerPage::Text("application/json"),
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
        ),
        page("api", ServerPage::Discovery("APIVersions"), "getCoreAPIVersions", "core"),
        page("apis", ServerPage::Discovery("APIGroupList"), "getAPIVersions", "apis"),
        page(
            "openid/v1/jwks",
            ServerPage::Text("application/jwk-set+json"),
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
        ),
        page("version", ServerPage::Version, "getCodeVersion", "version"),
    ];
    pages.extend(groups.filter(|group| !group.is_empty()).map(|group| {
        let (words, tag) = group_words(group);
        page(
            &format!("apis/{group}"),
            ServerPage::Discovery("APIGroup"),
            &format!("get{}APIGroup", capitalize(&words)),
            &tag,
        )
    }));
    pages
}
