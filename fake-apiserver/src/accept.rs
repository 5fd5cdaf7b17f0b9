//! The `Accept` header: whole objects or their metadata only.

use serde_json::{Value, json};

use crate::status::Failure;

/// The form in which objects are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`, which a watch also takes for its objects.
    MetadataList,
}

impl Form {
    /// The first form of the header that we can give.
    pub(crate) fn read(accept: &str) -> Result<Form, Failure> {
        let forms = accept.split(',').map(str::trim).filter(|range| !range.is_empty());
        let mut none = true;
        for range in forms {
            none = false;
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let get = |name| parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value);
            let ours = get("g") == "meta.k8s.io" && matches!(get("v"), "v1" | "v1beta1");
            match get("as") {
                "" => return Ok(Form::Whole),
                "PartialObjectMetadata" if ours => return Ok(Form::Metadata),
                "PartialObjectMetadataList" if ours => return Ok(Form::MetadataList),
                _ => {}
            }
        }
        if none {
            return Ok(Form::Whole);
        }
        let message = "only the following media types are accepted: application/json";
        Err(Failure { details: json!({}), ..Failure::new(406, "NotAcceptable", message) })
    }
}

/// The metadata of an object, as the form wants it.
pub(crate) fn metadata_of(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn the_first_form_that_can_be_given_is_taken() {
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for (accept, form) in [
            ("", Some(Form::Whole)),
            ("*/*", Some(Form::Whole)),
            (partial, Some(Form::Metadata)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Whole)),
            (
                "application/vnd.kubernetes.protobuf, application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::MetadataList),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            ("application/json;as=PartialObjectMetadata;g=other;v=v1", None),
        ] {
            assert_eq!(Form::read(accept).ok(), form, "{accept}");
        }
    }
}
