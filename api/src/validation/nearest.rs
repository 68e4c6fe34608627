//! Did you mean: the word nearest to a misspelt one.

/// The nearest of `words`, if it is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // No flag and no field is longer; a longer word is no misspelling, and the work below grows with its length.
    if word.len() > 80 {
        return None;
    }
    words
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 6)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be inserted, removed, replaced or swapped with their neighbour; capital or not is no difference.
fn distance(a: &str, b: &str) -> usize {
    let letters = |word: &str| -> Vec<char> {
        let lower = |letter: char| letter.to_ascii_lowercase();
        word.chars().map(lower).collect()
    };
    let (a, b) = (letters(a), letters(b));
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(x != y);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_far() {
        let words = || ["snapshot-count", "max-wals", "cors"].into_iter();
        assert_eq!(nearest("snapshot-cuont", words()), Some("snapshot-count"));
        assert_eq!(nearest("snapshots-count", words()), Some("snapshot-count"));
        assert_eq!(nearest("maxwals", words()), Some("max-wals"));
        assert_eq!(nearest("CORS", words()), Some("cors"));
        assert_eq!(nearest("listen-peer-urls", words()), None);
        assert_eq!(nearest("", words()), None);
    }
}
