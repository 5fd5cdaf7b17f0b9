//! Everything that is known of the cluster, and the changes that make it up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use config::ObjectRef;

use crate::few::Set;
use crate::fleet::{self, FleetState};
use crate::objects::{
    ConfigMap, EndpointSlice, Ingress, IngressClass, NameParts, Namespace, NamespacedName, Object, ObjectId,
    ProxyFleet, Secret, Service, Workload,
};
use crate::table::Table;

/// The controller name that an IngressClass must give to be ours.
pub const INGRESS_CONTROLLER: &str = "scalws.io/ingress-controller";

/// The class that exists by itself where there is no API server.
pub const BUILTIN_CLASS: &str = "nginx";

/// Names a fleet: the namespace and name of its ProxyFleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FleetName(NamespacedName);

impl FleetName {
    /// Of these two.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> FleetName {
        FleetName(NamespacedName::new(namespace, name))
    }

    /// Of the ProxyFleet with this name.
    pub(crate) fn of(key: &NamespacedName) -> FleetName {
        FleetName(key.clone())
    }

    /// The name of its ProxyFleet.
    pub(crate) fn key(&self) -> &NamespacedName {
        &self.0
    }
}

impl Deref for FleetName {
    type Target = NameParts;

    fn deref(&self) -> &NameParts {
        &self.0
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a fleet is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The port of the listener without TLS.
    pub http_port: u16,
    /// The port of the listener with TLS.
    pub https_port: u16,
}

/// What does not come from an object that a tenant may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Fleets that are there without a ProxyFleet.
    pub fleets: BTreeMap<FleetName, FleetSettings>,
    /// Whether these have the listeners that stand here even when there is a ProxyFleet of their name: whoever runs the
    /// proxies has opened their ports already.
    pub fleets_are_fixed: bool,
    /// The fleet of classes without parameters.
    pub default_fleet: FleetName,
    /// The controller name of our classes: [`INGRESS_CONTROLLER`] unless there are several of us.
    pub ingress_controller: String,
    /// Whether endpoints in 127.0.0.0/8 and `::1` get traffic.
    pub allow_loopback_endpoints: bool,
    /// Whether IngressClass `nginx` exists by itself while the world has none of that name.
    pub builtin_classes: bool,
}

impl Settings {
    /// One fleet `scalws/default` on these ports, and the class `nginx` by itself: what `scalwsctl up` and `lint` use.
    pub fn local(http_port: u16, https_port: u16) -> Settings {
        let default_fleet = FleetName::new("scalws", "default");
        Settings {
            fleets: BTreeMap::from([(default_fleet.clone(), FleetSettings { http_port, https_port })]),
            fleets_are_fixed: true,
            default_fleet,
            ingress_controller: INGRESS_CONTROLLER.to_owned(),
            allow_loopback_endpoints: false,
            builtin_classes: true,
        }
    }
}

/// One change of the world.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object is there, or is another now.
    Put(Arc<Object>),
    /// An object is gone.
    Delete(ObjectRef),
    /// The settings are these now. May cost what the whole world costs.
    Settings(Settings),
}

type Objects = Table<NamespacedName, Arc<Object>>;

/// Everything that is known of the cluster.
#[derive(Clone, Debug)]
pub struct World {
    settings: Arc<Settings>,
    ingresses: Objects,
    classes: Objects,
    services: Objects,
    slices: Objects,
    secrets: Objects,
    config_maps: Objects,
    namespaces: Objects,
    proxy_fleets: Objects,
    gateway: Table<ObjectId, Arc<Object>>,
    slices_of: Table<NamespacedName, Set<NamespacedName>>,
    default_classes: BTreeSet<String>,
    gateway_classes: BTreeSet<ObjectId>,
}

impl World {
    /// An empty world.
    pub fn new(settings: Settings) -> World {
        World {
            settings: Arc::new(settings),
            ingresses: Objects::default(),
            classes: Objects::default(),
            services: Objects::default(),
            slices: Objects::default(),
            secrets: Objects::default(),
            config_maps: Objects::default(),
            namespaces: Objects::default(),
            proxy_fleets: Objects::default(),
            gateway: Table::default(),
            slices_of: Table::default(),
            default_classes: BTreeSet::new(),
            gateway_classes: BTreeSet::new(),
        }
    }

    /// Takes in a change. Costs the same however large the world is.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Settings(settings) => self.settings = Arc::new(settings.clone()),
            Change::Put(object) => {
                self.unlink(object.kind(), object.key());
                self.link(object);
                match self.table(object.kind()) {
                    Some(table) => table.insert(object.key().clone(), Arc::clone(object)),
                    None => self.gateway.insert(object.id(), Arc::clone(object)),
                };
            }
            Change::Delete(reference) => {
                let id = ObjectId::from(reference);
                self.unlink(id.kind(), id.key());
                match self.table(id.kind()) {
                    Some(table) => table.remove(id.key()),
                    None => self.gateway.remove(&id),
                };
            }
        }
    }

    fn table(&mut self, kind: &str) -> Option<&mut Objects> {
        Some(match kind {
            "Ingress" => &mut self.ingresses,
            "IngressClass" => &mut self.classes,
            "Service" => &mut self.services,
            "EndpointSlice" => &mut self.slices,
            "Secret" => &mut self.secrets,
            "ConfigMap" => &mut self.config_maps,
            "Namespace" => &mut self.namespaces,
            "ProxyFleet" => &mut self.proxy_fleets,
            _ => return None,
        })
    }

    fn link(&mut self, object: &Object) {
        match object {
            Object::EndpointSlice(slice) => {
                if let Some(service) = slice.service() {
                    self.slices_of.or_default(&service).insert(object.key().clone(), ());
                }
            }
            Object::IngressClass(class) if is_default_class(class) => {
                self.default_classes.insert(class.metadata.name().to_owned());
            }
            Object::Gateway(class) if class.kind() == GATEWAY_CLASS => drop(self.gateway_classes.insert(object.id())),
            _ => {}
        }
    }

    fn unlink(&mut self, kind: &str, key: &NamespacedName) {
        if kind == "IngressClass" {
            self.default_classes.remove(&*key.name);
        }
        if kind == GATEWAY_CLASS {
            self.gateway_classes.remove(&ObjectId::new(kind, key.clone()));
        }
        if kind == "EndpointSlice"
            && let Some(service) = self.slice(key).and_then(EndpointSlice::service)
            && let Some(set) = self.slices_of.get_mut(&service)
        {
            set.remove(key);
            if set.is_empty() {
                self.slices_of.remove(&service);
            }
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn tables(&self) -> [&Objects; 8] {
        [
            &self.classes,
            &self.config_maps,
            &self.slices,
            &self.ingresses,
            &self.namespaces,
            &self.proxy_fleets,
            &self.secrets,
            &self.services,
        ]
    }

    /// Every object, by kind, then namespace and name. Sorts the world.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        let tables = self.tables().into_iter().flat_map(Table::sorted).map(|(_, object)| object);
        tables.chain(self.gateway_objects())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.tables().into_iter().map(Table::len).sum::<usize>() + self.gateway.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Arc<Object>> {
        self.object(&reference.into())
    }

    /// An object.
    pub fn object(&self, id: &ObjectId) -> Option<&Arc<Object>> {
        let key = id.key();
        match id.kind() {
            "Ingress" => self.ingresses.get(key),
            "IngressClass" => self.classes.get(key),
            "Service" => self.services.get(key),
            "EndpointSlice" => self.slices.get(key),
            "Secret" => self.secrets.get(key),
            "ConfigMap" => self.config_maps.get(key),
            "Namespace" => self.namespaces.get(key),
            "ProxyFleet" => self.proxy_fleets.get(key),
            _ => self.gateway.get(id),
        }
    }

    /// The names of all Ingresses, sorted.
    pub fn ingress_keys(&self) -> impl Iterator<Item = &NamespacedName> {
        self.ingresses.sorted().into_iter().map(|(key, _)| key)
    }

    /// Every object of the Gateway API, sorted.
    pub fn gateway_objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.gateway.sorted().into_iter().map(|(_, object)| object)
    }

    pub(crate) fn ingress(&self, key: &NamespacedName) -> Option<&Ingress> {
        match self.ingresses.get(key).map(Arc::as_ref) {
            Some(Object::Ingress(o)) => Some(o),
            _ => None,
        }
    }

    pub(crate) fn class(&self, name: &str) -> Option<&IngressClass> {
        match self.classes.get(&NamespacedName::new("", name)).map(Arc::as_ref) {
            Some(Object::IngressClass(o)) => Some(o),
            _ => None,
        }
    }

    /// Every IngressClass and GatewayClass.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &Object> {
        let ingress = self.classes.sorted().into_iter().map(|(_, class)| class.as_ref());
        ingress.chain(self.gateway_classes.iter().filter_map(|id| self.gateway.get(id)).map(Arc::as_ref))
    }

    pub(crate) fn proxy_fleet(&self, name: &FleetName) -> Option<&ProxyFleet> {
        match self.proxy_fleets.get(name.key()).map(Arc::as_ref) {
            Some(Object::ProxyFleet(o)) => Some(o),
            _ => None,
        }
    }

    /// The name of everything that is, or may be, a fleet: of the settings and of every ProxyFleet.
    pub(crate) fn fleet_names(&self) -> BTreeSet<FleetName> {
        let objects = self.proxy_fleets.sorted().into_iter().map(|(key, _)| FleetName::of(key));
        self.settings.fleets.keys().cloned().chain(objects).collect()
    }

    /// Every fleet that is declared, and the workload that its pods must belong to. None: only the settings declare it.
    pub fn fleets(&self) -> BTreeMap<FleetName, Option<Workload>> {
        let declared = self.fleet_names().into_iter().filter_map(|name| {
            let object = self.proxy_fleet(&name);
            let state = fleet::state(&self.settings, &name, object)?;
            matches!(state, FleetState::Usable(_)).then(|| (name, object.map(|object| object.spec.workload.clone())))
        });
        declared.collect()
    }

    /// Every fleet that a class of ours names, or means by having no parameters. A name here makes no fleet.
    pub fn fleets_named_by_classes(&self) -> BTreeSet<FleetName> {
        fleet::named_by_classes(self)
    }

    /// The default class. Of several the newest counts, then the smallest name (as the API server's admission does).
    pub(crate) fn default_class(&self) -> Option<&IngressClass> {
        let classes = self.default_classes.iter().filter_map(|name| self.class(name));
        classes.min_by_key(|c| (std::cmp::Reverse(c.metadata.creation_timestamp), c.metadata.key.clone()))
    }

    pub(crate) fn service(&self, key: &NamespacedName) -> Option<&Service> {
        match self.services.get(key).map(Arc::as_ref) {
            Some(Object::Service(o)) => Some(o),
            _ => None,
        }
    }

    pub(crate) fn slice(&self, key: &NamespacedName) -> Option<&EndpointSlice> {
        match self.slices.get(key).map(Arc::as_ref) {
            Some(Object::EndpointSlice(o)) => Some(o),
            _ => None,
        }
    }

    pub(crate) fn slices_of(&self, service: &NamespacedName) -> impl Iterator<Item = &EndpointSlice> {
        self.slices_of.get(service).into_iter().flat_map(Set::keys).filter_map(|key| self.slice(key))
    }

    pub(crate) fn secret(&self, key: &NamespacedName) -> Option<&Secret> {
        match self.secrets.get(key).map(Arc::as_ref) {
            Some(Object::Secret(o)) => Some(o),
            _ => None,
        }
    }

    /// A ConfigMap.
    pub fn config_map(&self, key: &NamespacedName) -> Option<&ConfigMap> {
        match self.config_maps.get(key).map(Arc::as_ref) {
            Some(Object::ConfigMap(o)) => Some(o),
            _ => None,
        }
    }

    /// A Namespace.
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        match self.namespaces.get(&NamespacedName::new("", name)).map(Arc::as_ref) {
            Some(Object::Namespace(o)) => Some(o),
            _ => None,
        }
    }
}

const GATEWAY_CLASS: &str = "GatewayClass";

fn is_default_class(class: &IngressClass) -> bool {
    class.metadata.annotations.get("ingressclass.kubernetes.io/is-default-class") == Some("true")
}
