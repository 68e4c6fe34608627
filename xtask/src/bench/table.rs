//! The table of figures that the benchmark prints: pure.

use std::fmt;

use super::median;

#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    figure: String,
    unit: &'static str,
    /// What was measured, each round.
    ours: Vec<f64>,
    baseline: Option<(&'static str, Vec<f64>)>,
    /// The most that is fine: of the ratio where there is a baseline, else of the figure itself. Without one, the figure is told
    /// and not judged.
    target: Option<f64>,
}

impl Row {
    pub(super) fn beside(
        figure: &str,
        unit: &'static str,
        ours: Vec<f64>,
        baseline: (&'static str, Vec<f64>),
        target: f64,
    ) -> Self {
        Self {
            figure: figure.to_owned(),
            unit,
            ours,
            baseline: Some(baseline),
            target: Some(target),
        }
    }

    pub(super) fn alone(figure: String, unit: &'static str, ours: Vec<f64>, target: f64) -> Self {
        Self {
            figure,
            unit,
            ours,
            baseline: None,
            target: Some(target),
        }
    }

    /// A figure nobody has promised anything about.
    pub(super) fn told(figure: String, unit: &'static str, ours: Vec<f64>) -> Self {
        Self {
            figure,
            unit,
            ours,
            baseline: None,
            target: None,
        }
    }

    fn ratio(&self) -> Option<f64> {
        let (_, baseline) = self.baseline.as_ref()?;
        Some(median(&self.ours) / median(baseline))
    }

    fn cells(&self) -> [String; 6] {
        let unit = self.unit;
        let ratio = self.ratio();
        let judged = ratio.unwrap_or_else(|| median(&self.ours));
        let verdict = match self.target {
            None => "",
            Some(target) if judged <= target => "ok",
            Some(_) => "over",
        };
        [
            self.figure.clone(),
            format!("{:.1} {unit} ({})", median(&self.ours), spread(&self.ours)),
            self.baseline
                .as_ref()
                .map_or_else(String::new, |(name, values)| {
                    format!("{name} {:.1} {unit} ({})", median(values), spread(values))
                }),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} ×")),
            match (self.target, ratio) {
                (None, _) => String::new(),
                (Some(target), Some(_)) => format!("≤ {target} ×"),
                (Some(target), None) => format!("≤ {target} {unit}"),
            },
            verdict.to_owned(),
        ]
    }
}

/// From the least to the most of the rounds.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.1}–{most:.1}")
}

impl Table {
    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "figure",
            "median (range)",
            "baseline",
            "ratio",
            "target",
            "",
        ]
        .map(str::to_owned);
        let lines: Vec<[String; 6]> = std::iter::once(head)
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        let width = |column: usize| {
            lines
                .iter()
                .map(|cells| cells[column].chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        for cells in &lines {
            let padded: Vec<String> = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            writeln!(formatter, "{}", padded.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_baseline_the_ratio_is_judged() {
        let row = |ours| Row::beside("ready", "s", ours, ("plain", vec![2.0]), 1.5).cells();
        assert_eq!(
            row(vec![3.0, 3.2, 2.8]),
            [
                "ready",
                "3.0 s (2.8–3.2)",
                "plain 2.0 s (2.0–2.0)",
                "1.50 ×",
                "≤ 1.5 ×",
                "ok"
            ]
        );
        assert_eq!(row(vec![3.1])[5], "over");
    }

    #[test]
    fn without_a_baseline_the_figure_itself_is_judged() {
        let row = |ours| Row::alone("memory".to_owned(), "MB", ours, 12.0).cells();
        assert_eq!(
            row(vec![12.0]),
            ["memory", "12.0 MB (12.0–12.0)", "", "", "≤ 12 MB", "ok"]
        );
        assert_eq!(row(vec![12.1])[5], "over");
    }

    #[test]
    fn a_figure_without_a_promise_is_not_judged() {
        let cells = Row::told("grow".to_owned(), "s", vec![4.0]).cells();
        assert_eq!(cells, ["grow", "4.0 s (4.0–4.0)", "", "", "", ""]);
    }

    #[test]
    fn what_was_not_measured_is_not_ok() {
        assert_eq!(
            Row::alone("memory".to_owned(), "MB", Vec::new(), 12.0).cells()[5],
            "over"
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::default();
        table.push(Row::alone("a".to_owned(), "ms", vec![1.0], 2.0));
        table.push(Row::alone("much longer".to_owned(), "ms", vec![100.0], 2.0));
        let text = table.to_string();
        let columns: Vec<Option<usize>> = text
            .lines()
            .skip(1)
            .map(|line| line.chars().position(|letter| letter == '≤'))
            .collect();
        assert_eq!(columns[0], columns[1], "{text}");
    }
}
