//! PEM as it is found in Secrets: without a last line break, with CRLF, or with blocks glued together (RFC 7468, lax).

use base64::Engine as _;
use zeroize::Zeroizing;

/// One block.
pub(crate) struct Block {
    /// What stands after `BEGIN`.
    pub(crate) label: String,
    /// Whether it has encryption headers (RFC 1421 section 4.6.1.1).
    pub(crate) encrypted: bool,
    /// The content.
    pub(crate) der: Zeroizing<Vec<u8>>,
}

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";

/// Reads every block. Text between blocks is skipped.
///
/// # Errors
/// When a block does not end or holds no base64: a chain must never be served cut short.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Block>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        rest = &rest[start + BEGIN.len()..];
        let number = blocks.len() + 1;
        let (label, after) =
            rest.split_once(DASHES).ok_or_else(|| format!("block {number} has a broken first line"))?;
        let end = format!("-----END {label}{DASHES}");
        let (body, after) = after.split_once(&end).ok_or_else(|| format!("block {number} does not end"))?;
        if body.contains(BEGIN) {
            return Err(format!("block {number} does not end before the next begins"));
        }
        let mut encrypted = false;
        let mut encoded = Zeroizing::new(String::with_capacity(body.len()));
        for line in body.lines() {
            if line.contains(':') {
                encrypted |= line.contains("ENCRYPTED");
            } else {
                encoded.extend(line.chars().filter(|c| !c.is_whitespace()));
            }
        }
        if encrypted {
            // The header block may end in a line of its own that is no base64; the content is not needed.
            encoded.clear();
        }
        let der = base64::engine::general_purpose::STANDARD
            .decode(encoded.as_bytes())
            .map_err(|_| format!("block {number} is not base64"))?;
        blocks.push(Block { label: label.to_owned(), encrypted, der: Zeroizing::new(der) });
        rest = after;
    }
    Ok(blocks)
}

/// Writes one block in the strict form of RFC 7468.
pub(crate) fn write(label: &str, der: &[u8]) -> Zeroizing<String> {
    let encoded = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(der));
    // Room for everything at once, so that no copy of a key is left behind by growing.
    let mut out = Zeroizing::new(String::with_capacity(encoded.len() + encoded.len() / 64 + 2 * label.len() + 40));
    out.push_str(BEGIN);
    out.push_str(label);
    out.push_str("-----\n");
    let mut at = 0;
    while at < encoded.len() {
        let end = (at + 64).min(encoded.len());
        out.push_str(&encoded[at..end]);
        out.push('\n');
        at = end;
    }
    out.push_str("-----END ");
    out.push_str(label);
    out.push_str("-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Result<Vec<String>, String> {
        parse(text.as_bytes()).map(|blocks| blocks.into_iter().map(|b| b.label).collect())
    }

    #[test]
    fn glued_blocks_crlf_and_a_missing_line_break_are_read() {
        let one = write("CERTIFICATE", b"one");
        let glued = format!("{}{}", one.trim_end(), one.trim_end());
        assert_eq!(labels(&glued).unwrap(), ["CERTIFICATE", "CERTIFICATE"]);
        assert_eq!(labels(&one.replace('\n', "\r\n")).unwrap(), ["CERTIFICATE"]);
        assert_eq!(parse(one.as_bytes()).unwrap()[0].der.as_slice(), b"one");
    }

    #[test]
    fn a_block_that_is_cut_short_is_an_error() {
        let one = write("CERTIFICATE", &[7; 100]);
        for cut in [one.len() - 5, one.len() / 2, 30] {
            assert!(labels(&one[..cut]).is_err(), "{cut}");
        }
        let half = &one[..one.len() / 2];
        assert!(labels(&format!("{half}\n{}", &*one)).is_err());
    }

    #[test]
    fn text_around_blocks_is_skipped() {
        let one = write("X", b"x");
        assert_eq!(labels(&format!("subject=a\n{}\nissuer=b\n", &*one)).unwrap(), ["X"]);
        assert!(labels("nothing here").unwrap().is_empty());
    }
}
