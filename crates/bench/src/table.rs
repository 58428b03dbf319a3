//! Lines of tables.

use std::fmt::Write as _;

/// Width of a label in the table of a run, in characters.
pub(crate) const LABEL_WIDTH: usize = 26;
const COLUMN_WIDTH: usize = 16;

/// Returns a line with a label of `label_width` characters and a cell per column.
pub(crate) fn line(
    label_width: usize,
    label: &str,
    cells: impl IntoIterator<Item = String>,
) -> String {
    let mut line = format!("{label:<label_width$}");
    for cell in cells {
        write!(line, "{cell:>COLUMN_WIDTH$}").expect("text can always grow");
    }
    line
}

/// Groups digits: `1234567.8` with one digit becomes `1,234,567.8`.
pub(crate) fn grouped(figure: f64, digits: usize) -> String {
    let text = format!("{figure:.digits$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(1_234_567.89, 1), "1,234,567.9");
        assert_eq!(grouped(123.0, 0), "123");
        assert_eq!(grouped(0.0, 2), "0.00");
    }
}
