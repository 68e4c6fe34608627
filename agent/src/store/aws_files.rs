//! AWS's files `credentials` and `config`: sections of `name = value`. Pure.

/// The value of a setting in the profile `default`.
pub(super) fn setting<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    let mut in_default = false;
    for line in file.lines().map(str::trim) {
        if let Some(section) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            in_default = matches!(section.trim(), "default" | "profile default");
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_default)
            && key.trim() == name
        {
            return Some(value.trim());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_default_profile_is_read() {
        let file = "[other]\naws_access_key_id = no\n[default]\n# a comment\naws_access_key_id=AKIA\naws_secret_access_key = a=b/c \n[profile default]\nregion = eu-central-1\n";
        assert_eq!(setting(file, "aws_access_key_id"), Some("AKIA"));
        assert_eq!(setting(file, "aws_secret_access_key"), Some("a=b/c"));
        assert_eq!(setting(file, "region"), Some("eu-central-1"));
        assert_eq!(setting(file, "aws_session_token"), None);
        assert_eq!(
            setting("aws_access_key_id = nowhere", "aws_access_key_id"),
            None
        );
    }
}
