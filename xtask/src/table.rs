//! Plain text tables for the terminal.

/// Pads columns to equal width, numbers right-aligned.
pub(crate) fn render(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| pad_cell(cell, *width)).collect();
        text.push_str("  ");
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn pad_cell(cell: &str, width: usize) -> String {
    if cell.parse::<f64>().is_ok() { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["package", "passed"], ["api", "7"], ["discovery", "112"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        assert_eq!(render(&rows), "  package    passed\n  api             7\n  discovery     112\n");
    }
}
