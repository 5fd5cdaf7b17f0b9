//! One step of the world: what an action does.

use std::sync::Arc;

use controller::election::{Effect, Failed, Input, Observed, Standing, WriteFailed};

use super::sessions::{OBJECTS, Push, Taken};
use super::world::{Action, Broken, Controller, Office, Planted, Request, State, Where, Write, controller};

impl State {
    /// It happens. `false`: it is nothing at this moment.
    pub fn happen(&mut self, action: Action, planted: Planted) -> bool {
        let done = match action {
            Action::Round(who)
            | Action::Stall(who, _)
            | Action::Lose(who)
            | Action::LoseAnswer(who)
            | Action::GiveUp(who) => {
                self.begun = true;
                self.elect(who, action, planted)
            }
            Action::Watch(who, object) => {
                self.watch(who, object);
                true
            }
            Action::Push(who, agent) | Action::Break(who, agent) | Action::Send(who, agent) => {
                self.push(who, agent, action, planted)
            }
            _ => {
                self.trouble(action, planted);
                true
            }
        };
        self.forget(planted);
        self.sort();
        done
    }

    fn elect(&mut self, who: usize, action: Action, planted: Planted) -> bool {
        self.controllers[who].stalled = matches!(action, Action::Stall(..));
        if action == Action::Stall(who, Where::Before) {
            self.faults += 1;
            return self.controllers[who].request.is_none();
        }
        if self.controllers[who].request.is_none() {
            self.step(who, Input::Tick, planted);
        }
        let fresh = matches!(self.controllers[who].request, Some(Request::Read | Request::Write(_)));
        let write = match &self.controllers[who].request {
            Some(Request::Write(write)) => Some(write.clone()),
            _ => None,
        };
        match action {
            Action::Round(_) => {
                self.serve(who, planted);
                self.answer(who, planted);
                return true;
            }
            Action::Stall(_, at) => {
                if at == Where::Served {
                    self.serve(who, planted);
                }
                self.faults += 1;
                return fresh;
            }
            // A read that is lost is lost, wherever that is.
            Action::LoseAnswer(_) if write.is_some() => self.serve(who, planted),
            Action::LoseAnswer(_) => return false,
            Action::GiveUp(_) if write.is_none() || self.controllers[who].late.is_some() => return false,
            Action::GiveUp(_) => self.controllers[who].late = write,
            _ => {}
        }
        let asked = self.controllers[who].request.is_some();
        self.fail(who, planted);
        asked
    }

    fn serve(&mut self, who: usize, planted: Planted) {
        let request = match self.controllers[who].request.take() {
            Some(Request::Read) => Some(Request::ReadIs(self.lease.clone())),
            Some(Request::Write(write)) => Some(self.write(write, planted)),
            other => other,
        };
        self.controllers[who].request = request;
    }

    fn answer(&mut self, who: usize, planted: Planted) {
        let input = match self.controllers[who].request.take() {
            Some(Request::ReadIs(lease)) => Input::Read(Ok(lease.map(|lease| (*lease).clone()))),
            Some(Request::Written(lease)) => Input::Written(Ok((*lease).clone())),
            Some(Request::Conflict) => Input::Written(Err(WriteFailed::Conflict)),
            other => {
                self.controllers[who].request = other;
                return;
            }
        };
        self.step(who, input, planted);
    }

    fn fail(&mut self, who: usize, planted: Planted) {
        self.faults += 1;
        let input = match self.controllers[who].request.take() {
            Some(Request::Read | Request::ReadIs(_)) => Input::Read(Err(Failed)),
            _ => Input::Written(Err(WriteFailed::Unknown)),
        };
        self.step(who, input, planted);
    }

    fn trouble(&mut self, action: Action, planted: Planted) {
        match action {
            Action::Pass => (self.now, self.written) = (self.now + 1, 0),
            Action::Edit(object) => self.objects[object] += 1,
            Action::Delete => (self.lease, self.deleted) = (None, true),
            Action::ServeLate(who) => {
                if let Some(write) = self.controllers[who].late.take() {
                    self.write(write, planted);
                }
            }
            Action::Crash(who) => {
                self.faults += 1;
                if let Some(Request::Write(write)) = self.controllers[who].request.take() {
                    self.controllers[who].late = Some(write);
                }
                self.begin_anew(who, planted);
            }
            Action::Release(who) => {
                self.faults += 1;
                self.step(who, Input::Release, planted);
            }
            Action::StepDown(who) => {
                self.faults += 1;
                self.step(who, Input::StepDown, planted);
            }
            Action::Arrive(which) => {
                let (agent, push) = self.under_way.remove(which);
                self.arrive(agent, push, planted);
            }
            Action::Report(who, agent) => {
                let reported = self.controllers[who].newest().and_then(|push| self.agents[agent].reports(push));
                if let Some(epoch) = reported {
                    self.step(who, Input::EpochReported(epoch.into()), planted);
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, who: usize, agent: usize, action: Action, planted: Planted) -> bool {
        let Some(push) = self.controllers[who].newest() else { return false };
        match action {
            Action::Push(..) => self.arrive(agent, push, planted),
            Action::Break(..) => self.agents[agent].hear(push, planted != Planted::NoFence),
            _ if self.under_way.contains(&(agent, push)) => return false,
            _ => self.under_way.push((agent, push)),
        }
        true
    }

    /// What can change nothing any more is gone.
    fn forget(&mut self, planted: Planted) {
        if planted != Planted::NoVersionCheck {
            for controller in &mut self.controllers {
                let lease = &self.lease;
                controller.late.take_if(|late| match (&late.over, lease) {
                    // A Lease that is deleted may be made again.
                    (None, _) => false,
                    (Some(_), None) => true,
                    (Some((uid, version)), Some(lease)) => lease.uid != *uid || lease.version != *version,
                });
            }
        }
        if planted != Planted::NoFence {
            let agents = &self.agents;
            let refused = &mut self.refused;
            self.under_way.retain(|(agent, push)| {
                let mut agent = agents[*agent];
                let taken = agent.take(*push, true);
                *refused += u8::from(taken == Taken::Refused);
                taken == Taken::Applied
            });
        }
    }

    /// Agents are alike: which of them is which is of no consequence. What is under way has no order.
    fn sort(&mut self) {
        self.under_way.sort_unstable();
        if self.agents.len() != 2 {
            return;
        }
        let to = |agent: usize| -> Vec<Push> {
            self.under_way.iter().filter(|(to, _)| *to == agent).map(|(_, push)| *push).collect()
        };
        if (self.agents[0], to(0)) > (self.agents[1], to(1)) {
            self.agents.swap(0, 1);
            self.under_way.iter_mut().for_each(|(agent, _)| *agent = 1 - *agent);
            self.under_way.sort_unstable();
        }
    }

    fn begin_anew(&mut self, who: usize, planted: Planted) {
        self.lives += 1;
        let late = self.controllers[who].late.take();
        self.controllers[who] = Controller { late, ..controller(self.lives, planted) };
    }

    /// The rules of the API server.
    fn write(&mut self, Write { record, over }: Write, planted: Planted) -> Request {
        let uid = match (&self.lease, over) {
            (None, None) => format!("b{}", self.now),
            (Some(lease), Some((uid, version))) if lease.uid == uid && lease.version == version => uid,
            (Some(lease), _) if planted == Planted::NoVersionCheck => lease.uid.clone(),
            _ => return Request::Conflict,
        };
        self.written += 1;
        // Only that it grows is of consequence, not how often it was written before.
        let version = u16::from(self.now) * 16 + u16::from(self.written);
        let lease = Arc::new(Observed { uid, version: version.to_string(), record: (*record).clone() });
        self.lease = Some(Arc::clone(&lease));
        Request::Written(lease)
    }

    fn step(&mut self, who: usize, input: Input, planted: Planted) {
        let bug = (planted == Planted::SameEpoch).then_some(journal::mutants::Mutant::SameEpochAgain);
        journal::mutants::activate(bug);
        let effects = Arc::make_mut(&mut self.controllers[who].elector).step(Controller::moment(self.now), input);
        journal::mutants::activate(None);
        for effect in effects {
            match effect {
                Effect::Read => self.controllers[who].request = Some(Request::Read),
                Effect::Write { record, over } => {
                    let record = Arc::new(record);
                    self.controllers[who].request = Some(Request::Write(Write { record, over }));
                }
                Effect::Become(Standing::Leading { epoch }) => self.lead(who, epoch, planted),
                Effect::Become(Standing::Unsure) => {}
                Effect::Become(Standing::Following { .. }) => {
                    // What the watches of a follower show is of no consequence until it leads. It may be anything then.
                    (self.controllers[who].office, self.controllers[who].view) = (None, [0; OBJECTS]);
                }
                Effect::Released => self.begin_anew(who, planted),
            }
        }
    }

    fn lead(&mut self, who: usize, epoch: u64, planted: Planted) {
        let epoch = u8::try_from(epoch).unwrap_or(u8::MAX);
        let Controller { life, office, view, .. } = &mut self.controllers[who];
        if let Some(led) = self.led.get_mut(usize::from(epoch)) {
            if *led != 0 && led != life && planted != Planted::EpochMayRepeat {
                self.broken = Some(Broken::TwoInOneEpoch);
            }
            *led = *life;
        }
        *office = match *office {
            // The Lease was ours all the time, so nobody served anything newer.
            Some(office) if office.epoch == epoch => Some(office),
            Some(office) => Some(Office { epoch, generation: 1, ..office }),
            None => {
                let needs = (planted != Planted::NoBarrier && *view != self.objects).then_some(self.objects);
                Some(Office { epoch, generation: 1, needs })
            }
        };
    }

    fn watch(&mut self, who: usize, object: usize) {
        let Controller { view, office, .. } = &mut self.controllers[who];
        view[object] += 1;
        let Some(office) = office else { return };
        match office.needs {
            None => office.generation += 1,
            Some(needs) if (0..OBJECTS).all(|object| view[object] >= needs[object]) => office.needs = None,
            Some(_) => {}
        }
    }

    fn arrive(&mut self, agent: usize, push: Push, planted: Planted) {
        let before = self.agents[agent].applied;
        if self.agents[agent].take(push, planted != Planted::NoFence) != Taken::Applied {
            return;
        }
        let Some(before) = before else { return };
        if push.version() < before.version() {
            self.broken = Some(Broken::VersionWentBack);
        } else if (0..OBJECTS).any(|object| push.content[object] < before.content[object]) {
            self.broken = Some(Broken::ObjectWentBack);
        }
    }
}
