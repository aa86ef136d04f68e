//! `/openapi/v2` and `/openapi/v3` of this server: built-in and custom resources, and the group-versions of extension API servers.

use std::collections::BTreeMap;

use api::Status;
use edge::Response;
use edge::openapi::LocalOpenApi;
use edge::openapi::page::{OpenApiPage, SwaggerEncoding};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use schema::openapi::{OpenApiDocument, index_document};

use crate::extension_apis::ExtensionVersion;
use crate::{ApiServer, rest};

/// Serves an OpenAPI document; `None` if the path is not one. Each document is encoded on its first request.
pub(crate) async fn serve(
    server: &ApiServer,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let page = OpenApiPage::from_request(path, headers)?;
    let document = match page {
        OpenApiPage::Swagger(encoding) => server.swagger_with_extensions(encoding).await,
        OpenApiPage::Index => server.index_with_extensions().await,
        OpenApiPage::Version(path) => match version(server, path).await {
            Ok(document) => document?,
            Err(status) => return Some(Err(status)),
        },
    };
    Some(page.respond(&document, query, headers))
}

/// The document of a group-version. Its absence is proven against storage.
async fn version(server: &ApiServer, path: &str) -> Result<Option<OpenApiDocument>, Status> {
    if let Some(found) = known_version(server, path).await? {
        return Ok(Some(found));
    }
    // The group of a definition or of an extension API server has a dot.
    if !path.split('/').nth(1).is_some_and(|group| group.contains('.')) {
        return Ok(None);
    }
    if !server.definitions.catch_up().await || !server.extension_apis.catch_up().await {
        return Err(rest::definitions_behind());
    }
    known_version(server, path).await
}

async fn known_version(server: &ApiServer, path: &str) -> Result<Option<OpenApiDocument>, Status> {
    // An extension API server takes a built-in or custom group-version over.
    match server.extension_openapi.version(path).await {
        Some(ExtensionVersion::Document(document)) => Ok(Some(document)),
        Some(ExtensionVersion::Absent) => Ok(None),
        Some(ExtensionVersion::Unavailable) => {
            let message = format!("the OpenAPI document of {path} cannot be fetched from its extension API server");
            Err(Status::service_unavailable(message))
        }
        None => Ok(server.openapi.version(path, server.definitions.snapshot()).await),
    }
}

impl ApiServer {
    async fn index_with_extensions(&self) -> OpenApiDocument {
        let extensions = self.extension_openapi.addresses().await;
        if extensions.is_empty() {
            return self.openapi.index(&self.definitions.snapshot());
        }
        let all = self.addresses_with(extensions);
        index_document(all.iter().map(|(path, hash)| (path.as_str(), &**hash)))
    }

    /// All group-versions; those of extension API servers take others over.
    fn addresses_with(&self, extensions: BTreeMap<String, Box<str>>) -> BTreeMap<String, Box<str>> {
        let own = self.openapi.addresses(&self.definitions.snapshot()).into_iter();
        let own = own.filter(|(path, _)| {
            let group_version = path.strip_prefix("apis/").and_then(|path| path.split_once('/'));
            group_version.is_none_or(|(group, version)| self.extension_apis.get(group, version).is_none())
        });
        own.chain(extensions).collect()
    }

    async fn swagger_with_extensions(&self, encoding: SwaggerEncoding) -> OpenApiDocument {
        let extensions = self.extension_openapi.swaggers().await;
        let custom = self.definitions.snapshot();
        match extensions.is_empty() {
            true => self.openapi.swagger(encoding, custom).await,
            false => self.openapi.swagger_with_extensions(encoding, custom, extensions).await,
        }
    }
}

impl LocalOpenApi for ApiServer {
    fn addresses(&self) -> BoxFuture<'_, Vec<(String, Box<str>)>> {
        Box::pin(async {
            let extensions = self.extension_openapi.addresses().await;
            self.addresses_with(extensions).into_iter().collect()
        })
    }

    fn version<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Option<OpenApiDocument>> {
        Box::pin(self.openapi.version(path, self.definitions.snapshot()))
    }

    fn swagger(&self) -> BoxFuture<'_, OpenApiDocument> {
        Box::pin(self.swagger_with_extensions(SwaggerEncoding::Json))
    }
}
