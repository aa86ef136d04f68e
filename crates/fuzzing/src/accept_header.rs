//! The `Accept` header.

use api::Status;
use api::media::{
    ACCEPT_CLAUSES_MAX, AggregatedVersion, DiscoveryFormat, DiscoveryOffer, Encoding, Encodings, NegotiatedMediaType,
    ObjectOffer, Profile, TransformKind, is_pretty_print, negotiate, negotiate_discovery, negotiate_stream,
};

pub(crate) const SEEDS: &[&str] = &[
    "",
    "*/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json;\
     g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;\
     as=APIGroupDiscoveryList,application/json",
    "application/vnd.kubernetes.protobuf;stream=watch;q=0.9, application/yaml;q=0.3, */*;q=0.1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;pretty=1;sv=v1",
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8",
];
pub(crate) const DICTIONARY: &[&str] = &[
    ",",
    ";",
    "/",
    "=",
    " ",
    "*",
    "application/json",
    "application/yaml",
    "application/*",
    "application/vnd.kubernetes.protobuf",
    ";as=Table",
    ";as=APIGroupDiscoveryList",
    ";g=meta.k8s.io",
    ";g=apidiscovery.k8s.io",
    ";v=v1",
    ";v=v2",
    ";v=v2beta1",
    ";q=0.5",
    ";q=inf",
    ";q=NaN",
    ";pretty=1",
    ";stream=watch",
    ";profile=nopeer",
    ";sv=v1",
];

/// Negotiation selects an offered format or returns 406 with the accepted types. Negotiating again with the result
/// selects the same format, and a header that also accepts plain JSON is never refused.
pub fn accept_header(input: &[u8]) {
    let accept = String::from_utf8_lossy(input);
    for offer in [ObjectOffer::BUILT_IN, ObjectOffer::CUSTOM, ObjectOffer::OBJECT_ONLY, ObjectOffer::JSON] {
        check_object(&accept, offer);
    }
    if negotiate(&accept, ObjectOffer::BUILT_IN).is_err() {
        assert!(
            negotiate(&accept, ObjectOffer::CUSTOM).is_err(),
            "a smaller offer is accepted where a larger one is not"
        );
    }
    for oldest in [AggregatedVersion::V2, AggregatedVersion::V2Beta1] {
        for aggregated in [Encodings::ALL, Encodings::NONE] {
            check_discovery(&accept, DiscoveryOffer { aggregated, legacy: Encodings::ALL, oldest_version: oldest });
        }
    }
    if accept.split(',').count() < ACCEPT_CLAUSES_MAX {
        let with_json = format!("{accept},application/json");
        assert!(negotiate(&with_json, ObjectOffer::JSON).is_ok());
        assert!(negotiate_stream(&with_json, ObjectOffer::JSON).is_ok());
    }
    let _ = (is_pretty_print(&accept, &accept), Encoding::from_content_type(&accept));
}

fn check_object(accept: &str, offer: ObjectOffer) {
    let accepted = match negotiate(accept, offer) {
        Ok(accepted) => accepted,
        Err(error) => {
            assert!(negotiate_stream(accept, offer).is_err());
            return check_not_acceptable(&error.into());
        }
    };
    let offered = match accepted.transform.map(|transform| transform.kind) {
        None => offer.object,
        Some(TransformKind::Table) => offer.table,
        Some(TransformKind::PartialObjectMetadata | TransformKind::PartialObjectMetadataList) => offer.metadata,
    };
    assert!(offered.contains(accepted.encoding));
    let again = negotiate(accepted.encoding.media_type(), offer);
    let plain = NegotiatedMediaType { transform: None, pretty: false, ..accepted };
    assert!(again == Ok(plain) || !offer.object.contains(accepted.encoding));
    match negotiate_stream(accept, offer) {
        Ok(streamed) => assert!(streamed == accepted && accepted.encoding.watch_media_type().is_some()),
        Err(_) => assert!(accepted.encoding.watch_media_type().is_none()),
    }
}

fn check_discovery(accept: &str, offer: DiscoveryOffer) {
    let form = match negotiate_discovery(accept, offer) {
        Ok(form) => form,
        Err(error) => return check_not_acceptable(&error.into()),
    };
    let plain = match form {
        DiscoveryFormat::Aggregated { version, encoding, .. } => {
            assert!(version >= offer.oldest_version && offer.aggregated.contains(encoding));
            DiscoveryFormat::Aggregated { version, encoding, profile: Profile::Merged, pretty: false }
        }
        DiscoveryFormat::Legacy { encoding, .. } => {
            assert!(offer.legacy.contains(encoding));
            DiscoveryFormat::Legacy { encoding, pretty: false }
        }
    };
    assert_eq!(negotiate_discovery(form.media_type(), offer), Ok(plain));
}

fn check_not_acceptable(status: &Status) {
    assert_eq!(status.http_code(), 406);
    let text = String::from_utf8(status.to_json()).expect("JSON is UTF-8");
    assert!(text.contains("only the following media types are accepted: application/json"), "{text}");
}
