//! The engine: changes in, differences out.

use crate::outcome::{Delta, Translation};
use crate::plain::translate;
use crate::world::{Change, Settings, World};

/// Keeps a world and its translation, and tells what each change makes different.
#[derive(Debug)]
pub struct Engine {
    world: World,
    translation: Translation,
}

impl Engine {
    /// Over an empty world.
    pub fn new(settings: Settings) -> Engine {
        let world = World::new(settings);
        let translation = translate(&world);
        Engine { world, translation }
    }

    /// Takes in changes, in their order, as one step.
    pub fn apply(&mut self, changes: Vec<Change>) -> Delta {
        changes.iter().for_each(|change| self.world.apply(change));
        let next = translate(&self.world);
        let delta = self.translation.difference(&next);
        self.translation = next;
        delta
    }

    /// What the world comes to now.
    pub fn translation(&self) -> &Translation {
        &self.translation
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }
}
