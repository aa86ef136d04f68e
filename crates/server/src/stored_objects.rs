//! Surveys of stored objects for storage migrations: what is stored, past the API and its conversions.

use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use controllers::migrations::{MigratedClass, StoredObjects};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use preflight::inventory::value_form;
use preflight::key_layout::KeyLayout;
use storageversion::migration::{StoredForm, StoredRef, Survey, TargetForm};
use store::{KeyRange, Store, StoreEntry};

/// Entries per read: bounds memory, and how long one read keeps the store busy.
const PAGE_ENTRIES: usize = 500;
/// How often a survey starts again because its revision was compacted.
const SURVEYS_MAX: usize = 3;
/// The timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The stored objects below the prefix of this server.
pub(crate) struct StoreSurveys {
    store: Arc<dyn Store>,
    /// With a slash at its end.
    prefix: String,
    layout: KeyLayout,
}

impl std::fmt::Debug for StoreSurveys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSurveys").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl StoreSurveys {
    /// `prefix` has no slash at its end.
    pub(crate) fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self { store, prefix: format!("{prefix}/"), layout: KeyLayout::default() }
    }

    /// What all keys of a resource begin with.
    fn key_prefix(&self, resource: GroupResource<&str>, class: MigratedClass) -> Option<String> {
        match class {
            MigratedClass::BuiltIn => {
                let below = self.layout.built_in_prefix(resource.group, resource.resource)?;
                Some(format!("{}{below}/", self.prefix))
            }
            MigratedClass::Custom => Some(format!("{}{}/{}/", self.prefix, resource.group, resource.resource)),
        }
    }

    async fn survey_once(
        &self,
        resource: GroupResource<&str>,
        prefix: &str,
        target: &TargetForm,
    ) -> Result<Survey, store::Error> {
        let mut survey = Survey::default();
        let mut range = KeyRange::prefix(prefix.to_owned()).limit(PAGE_ENTRIES);
        loop {
            let page = match tokio::time::timeout(READ_TIMEOUT, self.store.range(range.clone())).await {
                Ok(page) => page?,
                Err(_) => return Err(store::Error::Unavailable { reason: "the read timed out".to_owned() }),
            };
            survey.revision = page.revision.0;
            for entry in &page.entries {
                add_entry(&mut survey, resource, prefix, entry, target);
            }
            let Some(last) = page.entries.last().filter(|_| page.has_more()) else { return Ok(survey) };
            let mut next = last.key.to_vec();
            next.push(0);
            range = range.start(next).at_revision(page.revision);
        }
    }
}

fn add_entry(
    survey: &mut Survey,
    resource: GroupResource<&str>,
    prefix: &str,
    entry: &StoreEntry,
    target: &TargetForm,
) {
    let key = String::from_utf8_lossy(&entry.key);
    match value_form(None, resource.group, resource.resource, &entry.key, &entry.value) {
        Ok(form) => {
            let stored = StoredForm {
                api_version: &form.api_version,
                media_type: form.media_type,
                encryption: &form.encryption,
            };
            survey.add(target.accepts(&stored), || {
                let below = key.strip_prefix(prefix).unwrap_or(&key);
                let (namespace, name) = below.split_once('/').unwrap_or(("", below));
                StoredRef { namespace: namespace.to_owned(), name: name.to_owned(), revision: entry.revision.0 }
            });
        }
        Err(_) => survey.add_undecodable(&key),
    }
}

impl StoredObjects for StoreSurveys {
    fn survey<'a>(
        &'a self,
        resource: GroupResource<&'a str>,
        class: MigratedClass,
        target: &'a TargetForm,
    ) -> BoxFuture<'a, Result<Survey, String>> {
        async move {
            let no_storage = || "the resource has no storage of its own".to_owned();
            let prefix = self.key_prefix(resource, class).ok_or_else(no_storage)?;
            for _ in 0..SURVEYS_MAX {
                match self.survey_once(resource, &prefix, target).await {
                    Ok(survey) => return Ok(survey),
                    Err(store::Error::Compacted { .. }) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            Err("history was compacted faster than it could be read".to_owned())
        }
        .boxed()
    }

    fn is_stored(&self, resource: GroupResource<&str>, class: MigratedClass) -> bool {
        self.key_prefix(resource, class).is_some()
    }
}
