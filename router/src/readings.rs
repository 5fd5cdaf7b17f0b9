//! How servers may read a path that is spelled oddly.

/// Which escaped separators a server decodes before it looks for segments.
const SEPARATORS: [&[&str]; 3] = [&[], &["%2F"], &["%2F", "%5C"]];

/// What ends the name of a segment, for a server that cuts parameters off.
const PARAMETERS: [&[&str]; 3] = [&[], &[";"], &[";", "%3B"]];

/// Every way in which a server may read a normal form other than as it is written, each once, as texts that are compared.
///
/// A server decodes no separators, `%2F`, or `%2F` and `%5C`; it cuts off what follows `;`, or `%3B` too; it merges empty
/// segments or keeps them; and in the end it decodes what is left. Each of these is taken with each, for a path that one
/// server reads as `/g;v/admin` is for another `/g/admin`.
pub(crate) fn readings(normal: &str, compared: &str) -> Vec<String> {
    let mut out = Vec::new();
    if normal != compared {
        out.push(compared.to_owned());
    }
    if !["//", ";", "%2F", "%5C", "%3B"].iter().any(|odd| normal.contains(odd)) {
        return out;
    }
    for separators in SEPARATORS {
        if separators.last().is_some_and(|last| !normal.contains(last)) {
            continue;
        }
        let decoded = separators.iter().fold(normal.to_owned(), |text, escaped| text.replace(escaped, "/"));
        for parameters in PARAMETERS {
            if parameters.last().is_some_and(|last| !normal.contains(last)) {
                continue;
            }
            for merges in [false, true] {
                let reading = read(&decoded, parameters, merges);
                let reading = config::compared(&reading).into_owned();
                if reading != normal && !out.contains(&reading) {
                    out.push(reading);
                }
            }
        }
    }
    out
}

fn read(decoded: &str, parameters: &[&str], merges: bool) -> String {
    let mut out = String::with_capacity(decoded.len());
    for segment in decoded.split('/').skip(1) {
        let ends = parameters.iter().filter_map(|parameter| segment.find(parameter));
        let name = segment.get(..ends.min().unwrap_or(segment.len())).unwrap_or_default();
        if !(merges && name.is_empty()) {
            out.push('/');
            out.push_str(name);
        }
    }
    // A path that ends in a slash still does.
    if merges && (decoded.ends_with('/') || out.is_empty()) {
        out.push('/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(normal: &str) -> Vec<String> {
        let mut all = readings(normal, &config::compared(normal));
        all.sort();
        all
    }

    #[test]
    fn plain_paths_have_no_other_reading() {
        for path in ["/", "/a/b/", "/a:b@c", "/a%20b", "/a%25b"] {
            assert_eq!(read_all(path), [] as [&str; 0], "{path}");
        }
    }

    #[test]
    fn every_leniency_counts_alone_and_with_each_other() {
        assert_eq!(read_all("/a%3Ab"), ["/a:b"]);
        assert_eq!(read_all("/g;v%2Fadmin"), ["/g", "/g/admin", "/g;v/admin"]);
        assert_eq!(read_all("/g;v//admin/"), ["/g//admin/", "/g/admin/", "/g;v/admin/"]);
        assert_eq!(read_all("/a%2Fb%5Cc"), ["/a/b%5Cc", "/a/b/c"]);
        assert_eq!(read_all("/a%3Bb;c"), ["/a", "/a;b", "/a;b;c"]);
        assert_eq!(read_all("/;x"), ["/"]);
    }
}
