//! `/openapi/v2` and `/openapi/v3` of this server.

use std::sync::Arc;

use api::Status;
use edge::Response;
use edge::openapi::LocalOpenApi;
use edge::openapi::page::{OpenApiPage, SwaggerEncoding};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use schema::openapi::OpenApiDocument;

use crate::definitions::LiveDefinitions;
use crate::openapi_documents::OpenApiDocuments;
use crate::{ApiServer, rest};

/// Serves an OpenAPI document; `None` if the path is not one. Each document is encoded on its first request.
pub(crate) async fn serve(
    documents: &Arc<OpenApiDocuments>,
    definitions: &LiveDefinitions,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let custom = definitions.snapshot();
    let page = OpenApiPage::from_request(path, headers)?;
    let document = match page {
        OpenApiPage::Swagger(encoding) => documents.swagger(encoding, custom).await,
        OpenApiPage::Index => documents.index(&custom),
        OpenApiPage::Version(path) => match documents.version(path, custom).await {
            Some(document) => document,
            None => match custom_version(documents, definitions, path).await {
                Ok(document) => document?,
                Err(status) => return Some(Err(status)),
            },
        },
    };
    Some(page.respond(&document, query, headers))
}

/// The document of a group-version of custom resources. Its absence is proven against storage.
async fn custom_version(
    documents: &Arc<OpenApiDocuments>,
    definitions: &LiveDefinitions,
    path: &str,
) -> Result<Option<OpenApiDocument>, Status> {
    // The group of a definition has a dot.
    if !path.split('/').nth(1).is_some_and(|group| group.contains('.')) {
        return Ok(None);
    }
    if !definitions.catch_up().await {
        return Err(rest::definitions_behind());
    }
    Ok(documents.version(path, definitions.snapshot()).await)
}

impl LocalOpenApi for ApiServer {
    fn addresses(&self) -> Vec<(String, Box<str>)> {
        self.openapi.addresses(&self.definitions.snapshot())
    }

    fn version<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Option<OpenApiDocument>> {
        Box::pin(self.openapi.version(path, self.definitions.snapshot()))
    }

    fn swagger(&self) -> BoxFuture<'_, OpenApiDocument> {
        Box::pin(self.openapi.swagger(SwaggerEncoding::Json, self.definitions.snapshot()))
    }
}
