//! Keys in PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One block of a PEM file.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) label: String,
    pub(super) der: Vec<u8>,
}

/// The blocks of a PEM text whose contents are base64; text between blocks is a comment.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let body: String = lines.by_ref().take_while(|line| *line != end).collect();
        if let Ok(der) = STANDARD.decode(body) {
            blocks.push(Block { label: label.to_owned(), der });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_comments() {
        let text = "a comment\n-----BEGIN A B-----\n  AQID\nBA==  \n-----END A B-----\n\n-----BEGIN BAD-----\n*\n-----END BAD-----\n-----BEGIN C-----\nBQ==";
        let found: Vec<(String, Vec<u8>)> = blocks(text).into_iter().map(|block| (block.label, block.der)).collect();
        assert_eq!(found, [("A B".to_owned(), vec![1, 2, 3, 4]), ("C".to_owned(), vec![5])]);
        assert!(blocks("").is_empty());
    }
}
