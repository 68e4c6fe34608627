//! One text for one rule: the words of a refusal, written once with `{holes}`, filled by Rust in the webhook and the
//! controller, and turned into a CEL expression for the API server.

use std::fmt::Display;

/// A message with `{holes}`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text(pub(crate) &'static str);

/// How a CEL rule says its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CelMessage {
    Fixed(String),
    Expression(String),
}

impl Text {
    /// The message with its holes filled.
    pub(crate) fn fill(self, holes: &[(&str, &dyn Display)]) -> String {
        let mut message = self.0.to_owned();
        for (name, value) in holes {
            message = message.replace(&format!("{{{name}}}"), &value.to_string());
        }
        message
    }

    /// The message as CEL: each hole becomes an expression that yields a string.
    pub(crate) fn cel(self, holes: &[(&str, &str)]) -> CelMessage {
        if holes.is_empty() {
            return CelMessage::Fixed(self.0.to_owned());
        }
        let mut parts = Vec::new();
        let mut rest = self.0;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, tail)) = after.split_once('}') else {
                break;
            };
            if !before.is_empty() {
                parts.push(literal(before));
            }
            let expression = holes.iter().find(|(hole, _)| *hole == name);
            parts.push(expression.map_or_else(|| literal(name), |(_, cel)| (*cel).to_owned()));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(literal(rest));
        }
        CelMessage::Expression(parts.join(" + "))
    }
}

/// A CEL string literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A CEL list of string literals.
pub(crate) fn list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.into_iter().map(literal).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: Text = Text("must be odd, not {size}: use {below} or {above}");

    #[test]
    fn fills_its_holes() {
        let message = MEMBERS.fill(&[("size", &4), ("below", &3), ("above", &5)]);
        assert_eq!(message, "must be odd, not 4: use 3 or 5");
    }

    #[test]
    fn becomes_a_cel_expression() {
        let message = MEMBERS.cel(&[("size", "string(self)"), ("below", "'3'"), ("above", "'5'")]);
        let expected = "'must be odd, not ' + string(self) + ': use ' + '3' + ' or ' + '5'";
        assert_eq!(message, CelMessage::Expression(expected.to_owned()));
        assert_eq!(Text("it's").cel(&[]), CelMessage::Fixed("it's".to_owned()));
        assert_eq!(literal("it's"), r"'it\'s'");
    }
}
