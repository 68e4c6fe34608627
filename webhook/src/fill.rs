//! The patch that writes defaults into what the user sent. Pure.
//!
//! Defaults are computed on our types, but the patch is made against the raw object: fields our types do not know stay, and what the
//! user wrote is never touched, not even its spelling.

use serde_json::{Value, json};

/// Operations that add to `raw` what `after` has and `before` had not. `before` and `after` are our types' view of the object, before
/// and after defaulting.
///
/// Removals are never made, and lists are one value: a default never reaches into what the user listed.
pub fn fill(raw: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    descend(Some(raw), Some(before), after, "", &mut operations);
    operations
}

fn descend(
    raw: Option<&Value>,
    before: Option<&Value>,
    after: &Value,
    path: &str,
    operations: &mut Vec<Value>,
) {
    if before == Some(after) {
        return;
    }
    if let (Some(Value::Object(raw)), Value::Object(after)) = (raw, after) {
        for (key, value) in after {
            let path = format!("{path}/{}", escape(key));
            let before = before.and_then(|before| before.get(key));
            descend(raw.get(key), before, value, &path, operations);
        }
        return;
    }
    // `add` on an object's key also replaces the null or empty value that stood for "unset".
    operations.push(json!({"op": "add", "path": path, "value": after}));
}

/// RFC 6901.
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(raw: &Value, before: &Value, after: &Value) -> Value {
        let operations = fill(raw, before, after);
        let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations)).unwrap();
        let mut patched = raw.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        patched
    }

    #[test]
    fn nothing_to_fill_is_no_operation() {
        let object = json!({"spec": {"size": 3}});
        assert_eq!(fill(&object, &object, &object), Vec::<Value>::new());
    }

    #[test]
    fn only_what_is_missing_is_added_one_operation_each() {
        let raw = json!({"spec": {"size": 5, "storage": {"className": "x"}}});
        let after = json!({"spec": {"size": 5, "version": "3.6.1", "storage": {"className": "x", "size": "8Gi"}}});
        assert_eq!(
            fill(&raw, &raw, &after),
            vec![
                json!({"op": "add", "path": "/spec/storage/size", "value": "8Gi"}),
                json!({"op": "add", "path": "/spec/version", "value": "3.6.1"}),
            ]
        );
    }

    #[test]
    fn unknown_fields_and_the_users_spelling_stay() {
        // Our types would print 1Gi; the user wrote 1024Mi.
        let raw = json!({"spec": {"quota": "1024Mi", "unheardOf": {"a": [1]}}});
        let before = json!({"spec": {"quota": "1Gi"}});
        let after = json!({"spec": {"quota": "1Gi", "size": 3}});
        assert_eq!(
            filled(&raw, &before, &after),
            json!({"spec": {"quota": "1024Mi", "unheardOf": {"a": [1]}, "size": 3}})
        );
    }

    #[test]
    fn a_null_or_empty_parent_is_filled_whole() {
        for unset in [json!(null), json!({})] {
            let raw = json!({"spec": {"storage": unset}});
            let before = json!({"spec": {}});
            let after = json!({"spec": {"storage": {"size": "8Gi"}}});
            assert_eq!(filled(&raw, &before, &after), after);
        }
    }

    #[test]
    fn what_our_types_drop_is_not_removed() {
        let raw = json!({"spec": {"options": {}}});
        let before = json!({"spec": {"options": {}}});
        let after = json!({"spec": {}});
        assert_eq!(fill(&raw, &before, &after), Vec::<Value>::new());
    }

    #[test]
    fn keys_with_slashes_are_escaped() {
        let raw = json!({"m": {}});
        let after = json!({"m": {"a/b~c": 1}});
        assert_eq!(filled(&raw, &raw, &after), after);
    }
}
