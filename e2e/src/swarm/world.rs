//! A generated folder of manifests: an Ingress, its Service and its EndpointSlice for each route.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Where a second address of a slice says its serial.
const SERIALS: u8 = 11;
/// The port of every endpoint.
const PORT: u16 = 8080;

/// A folder of manifests with its size.
#[derive(Clone, Debug)]
pub struct World {
    folder: PathBuf,
    routes: usize,
    one_host: bool,
}

impl World {
    /// Writes a folder with so many Ingresses, each with a Service of two endpoints. On one host they have a path each
    /// and one namespace, else a host each.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(folder: &Path, routes: usize, one_host: bool) -> Result<World> {
        fs::create_dir_all(folder)?;
        let world = World { folder: folder.to_owned(), routes, one_host };
        for number in 0..routes {
            fs::write(world.folder.join(format!("app-{number}.yaml")), world.app(number))?;
            world.put(number, world.route(number, 0), "route")?;
            world.put(number, world.slice(number, 0), "slice")?;
        }
        Ok(world)
    }

    /// How many routes it has.
    pub fn routes(&self) -> usize {
        self.routes
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn put(&self, number: usize, text: String, what: &str) -> Result<()> {
        fs::write(self.folder.join(format!("{what}-{number}.yaml")), text)?;
        Ok(())
    }

    /// Prepares a change beside the folder's manifests; the rename makes it.
    fn prepare(&self, name: &str, text: &str) -> Result<Change> {
        let (part, to) = (self.folder.join(format!(".{name}.part")), self.folder.join(name));
        fs::write(&part, text)?;
        Ok(Change { part, to })
    }

    /// The slice of this route with this serial: one of its two endpoints moves.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn move_endpoint(&self, number: usize, serial: u64) -> Result<Change> {
        self.prepare(&format!("slice-{number}.yaml"), &self.slice(number, serial))
    }

    /// The Ingress of this route with another second path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn change_route(&self, number: usize, serial: u64) -> Result<Change> {
        self.prepare(&format!("route-{number}.yaml"), &self.route(number, serial))
    }

    fn namespace(&self, number: usize) -> String {
        if self.one_host { "shop".to_owned() } else { format!("team-{}", number / 10) }
    }

    /// The host of a route.
    pub fn host(&self, number: usize) -> String {
        if self.one_host { "shop.example.com".to_owned() } else { format!("app-{number}.example.com") }
    }

    fn app(&self, number: usize) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: app-{number}, namespace: {}}}\nspec:\n  ports:\n  - {{name: http, port: 80, targetPort: {PORT}}}\n",
            self.namespace(number)
        )
    }

    fn route(&self, number: usize, serial: u64) -> String {
        let mut text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: app-{number}, namespace: {}}}\nspec:\n  ingressClassName: nginx\n  rules:\n  - host: {}\n    http:\n      paths:\n",
            self.namespace(number),
            self.host(number),
        );
        for path in [format!("/{number}"), format!("/{number}/v{serial}")] {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "      - path: {path}\n        pathType: Prefix\n        backend: {{service: {{name: app-{number}, port: {{number: 80}}}}}}"
            );
        }
        text
    }

    fn slice(&self, number: usize, serial: u64) -> String {
        let fixed = format!("10.{}.{}.{}", number / 65_536 % 256, number / 256 % 256, number % 256);
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: app-{number}-1\n  namespace: {}\n  labels: {{kubernetes.io/service-name: app-{number}}}\naddressType: IPv4\nports:\n- {{name: http, port: {PORT}, protocol: TCP}}\nendpoints:\n- addresses: [{fixed}]\n  conditions: {{ready: true}}\n- addresses: [{}.{}.{}.{}]\n  conditions: {{ready: true}}\n",
            self.namespace(number),
            SERIALS,
            serial / 65_536 % 256,
            serial / 256 % 256,
            serial % 256,
        )
    }
}

/// A file that is ready to take the place of another.
#[derive(Debug)]
pub struct Change {
    part: PathBuf,
    to: PathBuf,
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub fn make(self) -> Result<()> {
        Ok(fs::rename(self.part, self.to)?)
    }
}

/// The member that names a serial.
pub fn member_of(serial: u64) -> String {
    format!("{SERIALS}.{}.{}.{}:{PORT}", serial / 65_536 % 256, serial / 256 % 256, serial % 256)
}

/// The serial that a member (`address:port`) names, if it is one of the moving ones.
pub fn serial_of(member: &str) -> Option<u64> {
    let mut octets = member.split_once(':')?.0.split('.').map(str::parse::<u64>);
    let first = octets.next()?.ok()?;
    (first == u64::from(SERIALS)).then(|| octets.flatten().fold(0, |serial, octet| serial * 256 + octet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_says_the_serial_that_an_agent_reads_from_its_member() {
        let folder = tempfile::tempdir().unwrap();
        let world = World::write(folder.path(), 2, false).unwrap();
        let text = world.slice(1, 70_000);
        assert!(text.contains("[11.1.17.112]"), "{text}");
        assert_eq!(serial_of(&member_of(70_000)), Some(70_000));
        assert_eq!(serial_of("10.0.0.1:8080"), None);
    }
}
