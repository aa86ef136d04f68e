//! Reads `--admission-control-config-file` and the files that it names.

use std::path::Path;

use admission::PluginConfiguration;
use admission::configuration::{PluginSource, plugin_sources};
use object::decode::{self, BodyEncoding};
use serde_json::Value;
use server::WebhookCredentials;

use crate::flags::{FlagError, FlagValues};

const FLAG: &str = "admission-control-config-file";

/// The configuration of plugins, and the credentials for mutating and validating webhooks.
pub(super) fn read_plugin_configuration(
    flags: &FlagValues,
) -> Result<(PluginConfiguration, [WebhookCredentials; 2]), FlagError> {
    let Some(file) = flags.given_value(FLAG) else { return Ok(Default::default()) };
    read(Path::new(file)).map_err(|reason| FlagError::Rejected(format!("--{FLAG}: {reason}")))
}

fn read(file: &Path) -> Result<(PluginConfiguration, [WebhookCredentials; 2]), String> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let document = read_object(file)?;
    let mut configuration = PluginConfiguration::default();
    for (plugin, source) in plugin_sources(&document).map_err(|error| format!("{}: {error}", file.display()))? {
        let content = match source {
            PluginSource::Inline(content) => content,
            PluginSource::File(path) => read_object(&folder.join(path))?,
        };
        configuration.set(&plugin, &content).map_err(|error| format!("{}: {plugin}: {error}", file.display()))?;
    }
    let credentials = [&configuration.mutating_kubeconfig, &configuration.validating_kubeconfig]
        .map(|kubeconfig| kubeconfig.as_ref().map_or(Ok(WebhookCredentials::default()), |path| read_credentials(path)));
    let [mutating, validating] = credentials;
    let credentials = [mutating?, validating?];
    Ok((configuration, credentials))
}

/// Files that a kubeconfig names are relative to its folder.
fn read_credentials(kubeconfig: &str) -> Result<WebhookCredentials, String> {
    let path = Path::new(kubeconfig);
    let folder = path.parent().unwrap_or(Path::new(""));
    let document = Value::Object(read_object(path)?);
    WebhookCredentials::from_kubeconfig(&document, |file| read_bytes(&folder.join(file)))
        .map_err(|reason| format!("{kubeconfig}: {reason}"))
}

fn read_bytes(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn read_object(file: &Path) -> Result<api::json::JsonObject, String> {
    // JSON is YAML too.
    let value = decode::decode_value(&read_bytes(file)?, BodyEncoding::Yaml)
        .map_err(|error| format!("{}: {error}", file.display()))?
        .value;
    match value {
        Value::Object(object) => Ok(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(format!("{}: not an object", file.display()))
        }
    }
}
