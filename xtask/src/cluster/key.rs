//! What the programs of a cluster are made of, as one short key: the same key means the same programs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::programs::{ALL, ENVIRONMENT, HELM, arguments, kubernetes};

/// How many digits of the digest the key has.
const DIGITS: usize = 16;

/// What is hashed: the files that decide what is built, the arguments, and the compiler.
pub(super) struct Ingredients {
    /// What `go env GOVERSION` says.
    go: String,
    /// The arguments of each build.
    pub(super) arguments: Vec<String>,
    /// Name and content of each file.
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Ingredients {
    /// Those of a folder with go.mod.
    pub(super) fn read(folder: &Path, go: &str) -> Result<Ingredients> {
        let names = ["go.mod", "go.sum", "tools.go"];
        let mut paths: Vec<PathBuf> = names.map(PathBuf::from).to_vec();
        paths.extend(names.map(|name| Path::new(HELM).join(name)));
        let ours = ALL.iter().filter_map(|program| program.package.strip_prefix("./"));
        paths.extend(ours.map(|package| Path::new(package).join("main.go")));
        let read = |path: PathBuf| {
            let whole = folder.join(&path);
            let bytes = std::fs::read(&whole).with_context(|| format!("reading {}", whole.display()))?;
            Ok((path, bytes))
        };
        let files = paths.into_iter().map(read).collect::<Result<Vec<_>>>()?;
        let go_mod = files.first().map(|(_, bytes)| String::from_utf8_lossy(bytes)).unwrap_or_default();
        let version = kubernetes(&go_mod).context("go.mod does not require k8s.io/kubernetes")?;
        Ok(Ingredients { go: go.to_owned(), arguments: arguments(version), files })
    }

    /// The key.
    pub(super) fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(self.go.as_bytes());
        self.arguments.iter().for_each(|argument| part(argument.as_bytes()));
        ENVIRONMENT.iter().for_each(|(name, value)| part(format!("{name}={value}").as_bytes()));
        ALL.iter().for_each(|program| part(format!("{} {}", program.path, program.package).as_bytes()));
        for (path, bytes) in &self.files {
            part(path.to_string_lossy().as_bytes());
            part(bytes);
        }
        hasher.finalize().to_hex().chars().take(DIGITS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{DIGITS, Ingredients};

    fn real(go: &str) -> Ingredients {
        Ingredients::read(&crate::repository::root().join(super::super::programs::FOLDER), go).unwrap()
    }

    #[test]
    fn the_same_ingredients_have_the_same_key() {
        assert_eq!(real("go1.26.8").key(), real("go1.26.8").key());
        assert_eq!(real("go1.26.8").key().len(), DIGITS);
    }

    #[test]
    fn another_compiler_file_or_argument_is_another_key() {
        let key = real("go1.26.8").key();
        assert_ne!(real("go1.26.9").key(), key, "another compiler");
        for index in 0..real("go1.26.8").files.len() {
            let mut changed = real("go1.26.8");
            changed.files[index].1.push(b'\n');
            assert_ne!(changed.key(), key, "{}", changed.files[index].0.display());
        }
        let mut changed = real("go1.26.8");
        changed.arguments.push("-race".to_owned());
        assert_ne!(changed.key(), key, "another argument");
    }
}
