//! Worker groups: a goroutine of a group begins on one of the group's few threads and, because it
//! is pinned, stays there. For runtimes that are tied to threads. `THREADS.md`, "Worker groups".
//!
//! A member is an ordinary M that has joined the group; it runs other goroutines too.

use super::owner::release_p;
use super::{bound, ready, start};
use crate::os::heap;
use crate::os::locked::Locked;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{M, MRef};
use crate::sched::types::node::{Node, priority};
use crate::sched::types::runtime::{Guest, Runtime, rt};
use crate::sched::types::task::{Fifo, Task, TaskKind};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::{iter, ptr};

/// The most threads that a group may have.
pub const LARGEST: usize = crate::sched::prim::limits::PROCS;

/// A worker group: goroutines that all begin on the same few threads.
pub struct Group {
    places: Vec<Place>,
    /// How many of the first places are for threads that call `gs_run`.
    runners: usize,
    /// The number of the members' runtime; 0: none yet.
    runtime: AtomicU32,
    /// Goroutines that were spawned and have not ended.
    alive: AtomicUsize,
    /// Goroutines that wait for a thread to call `gs_run`, because they can begin on no other.
    waiting: Fifo,
    /// Whether `gs_workers_free` was called.
    freed: AtomicBool,
}

/// A place for one of the group's threads.
pub struct Place {
    /// The M that has the place; null if the place is free. Changed with `ALL`'s lock held.
    member: AtomicPtr<M>,
    /// The member's next place, in another group, or null. Changed with `ALL`'s lock held. Stays as
    /// it is when the group is freed, because the member may be reading it.
    next: AtomicPtr<Place>,
    /// The group that has the place.
    group: AtomicPtr<Group>,
}

impl Place {
    /// A free place, of no group yet.
    pub fn new() -> Place {
        Place {
            member: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
            group: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// All groups. Freed groups stay until the runtime ends: an M may still read them.
#[allow(clippy::vec_box, reason = "a group keeps its address while the list grows")]
static ALL: Locked<Vec<Box<Group>>> = Locked::new(Vec::new());

/// The number of the last runtime that has ended. No thread of that or an earlier runtime reads a
/// group any more. Used with the lock of `ALL` held.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// Locks the list around a fork, so that the child does not find it locked.
pub fn lock_all() {
    ALL.lock();
}

/// Undoes [`lock_all`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock_all() {
    // SAFETY: the caller holds the lock.
    unsafe { ALL.unlock() };
}

/// Makes a group of `n` threads, 1 to [`LARGEST`], of which `runners` are threads that call
/// `gs_run`. `None` if there is no memory.
pub fn create(n: usize, runners: usize) -> Option<&'static Group> {
    let mut places = Vec::new();
    if !heap::reserve(&mut places, n) {
        return None;
    }
    places.resize_with(n, Place::new);
    let group = heap::boxed(Group {
        places,
        runners,
        runtime: AtomicU32::new(0),
        alive: AtomicUsize::new(0),
        waiting: Fifo::new(),
        freed: AtomicBool::new(false),
    })?;
    let group: *const Group = ALL.with(|all| {
        if !heap::reserve(all, 1) {
            return None;
        }
        let at = ptr::from_ref(&*group);
        group.places.iter().for_each(|p| p.group.store(at.cast_mut(), Ordering::Relaxed));
        all.push(group);
        Some(at)
    })?;
    // SAFETY: the group is in the list until it is freed, and from then on until the runtime ends.
    let group = unsafe { &*group };
    if runners > 0
        && let Some(_inside) = Guest::try_enter()
    {
        let rt = rt();
        ALL.with(|_| {
            group.renew(rt);
            group.add_runners(rt);
        });
    }
    Some(group)
}

/// Frees a group. `-EBUSY`: a goroutine of the group has not ended; `-EINVAL`: `group` isn't a
/// group, or was freed before.
///
/// # Safety
/// After a return of 0 the caller does not use `group` any more.
pub unsafe fn free(group: *const Group) -> i32 {
    let inside = Guest::try_enter();
    let rt = inside.is_some().then(rt);
    let freed = ALL.with(|all| {
        let Some(group) = all.iter().find(|g| ptr::eq(&raw const ***g, group)) else {
            return Err(-libc::EINVAL);
        };
        if group.freed.load(Ordering::Relaxed) {
            return Err(-libc::EINVAL);
        }
        if group.alive.load(Ordering::Acquire) > 0 {
            return Err(-libc::EBUSY);
        }
        group.freed.store(true, Ordering::Relaxed);
        Ok(rt.map(|rt| group.dismiss(rt)))
    });
    match (freed, rt) {
        (Err(e), _) => return e,
        // Other groups may wait for these threads.
        (Ok(Some(runners)), Some(rt)) => runners.into_iter().for_each(|m| runner_comes(rt, m)),
        (Ok(_), Some(_)) => {}
        // There is no runtime, or the runtime is being ended; then its threads may still read the
        // group.
        (Ok(_), None) => drop_unseen(),
    }
    0
}

/// Drops freed groups: the runtime with this number has ended.
pub fn ended(number: u32) {
    ALL.with(|_| ENDED.store(number, Ordering::Relaxed));
    drop_unseen();
}

/// Notes, in the child of a fork, that the threads of the parent's runtime are gone. The caller
/// holds the lock of `ALL`.
pub fn forked(parent: &Runtime) {
    ENDED.store(parent.number, Ordering::Relaxed);
}

/// Drops the freed groups of runtimes that have ended, or of none. A thread reads a group without
/// the lock only if the group belongs to the thread's runtime.
fn drop_unseen() {
    let unseen = |all: &mut Vec<Box<Group>>| {
        let ended = ENDED.load(Ordering::Relaxed);
        let is_unseen = |g: &Group| g.runtime.load(Ordering::Relaxed) <= ended;
        all.iter().position(|g| g.freed.load(Ordering::Relaxed) && is_unseen(g))
    };
    // Groups are dropped without the lock.
    while let Some(group) = ALL.with(|all| unseen(all).map(|at| all.swap_remove(at))) {
        drop(group);
    }
}

/// Whether this is a group that was not freed.
pub fn is_live(group: *const Group) -> bool {
    ALL.with(|all| {
        all.iter().any(|g| ptr::eq(&raw const **g, group) && !g.freed.load(Ordering::Relaxed))
    })
}

/// Whether the thread is in `gs_run` and stays there for now: at its end it calls [`leave`].
fn is_in_run(m: &M) -> bool {
    m.is_runner() && !m.leaves.load(Ordering::Relaxed)
}

/// Makes a thread that is in `gs_run` join groups. A thread in no group joins a group that has a
/// place for such a thread. The thread also joins each group whose goroutines wait for such a
/// thread, because no other may ever come. Groups whose goroutines wait come first. Last come
/// groups that were used with a former runtime, or before a fork by the parent, whose threads the
/// child does not have.
pub fn runner_comes(rt: &Runtime, m: MRef) {
    let join = || {
        ALL.with(|all| {
            let group = all
                .iter()
                .filter(|g| !g.freed.load(Ordering::Relaxed))
                .filter(|g| g.waits_for_runner(rt) || !m.is_member() && g.has_place_for_runner(rt))
                .min_by_key(|g| (!g.waits_for_runner(rt), g.is_of_another(rt)))?;
            group.renew(rt);
            (is_in_run(&m) && group.join_as_runner(m)).then_some(ptr::from_ref(&**group))
        })
    };
    // SAFETY: an M has joined the group, so the group stays.
    while let Some(group) = join().map(|g| unsafe { &*g }) {
        group.wake_waiting();
    }
}

/// Takes a thread that leaves the runtime out of its groups. Goroutines that were to begin on it
/// begin on another thread.
pub fn leave(m: MRef) {
    // A runner goes on even if it is no member: another thread may be making it a member just now.
    if !m.is_runner() && !m.is_member() {
        return;
    }
    ALL.with(|_| {
        for place in places_of(m) {
            place.member.store(ptr::null_mut(), Ordering::Relaxed);
            if m.is_runner() {
                group_of(place).add_runners(rt());
            }
        }
        m.places.store(ptr::null_mut(), Ordering::Relaxed);
    });
    // Others push with the lock held, so no task has been pushed since.
    while let Some(task) = m.pinned.pop() {
        ready::push_global(task, priority::NORMAL);
    }
}

/// The group of a goroutine; the goroutine must have a group.
fn of_g(g: GRef) -> &'static Group {
    // SAFETY: a group can't be freed as long as a goroutine of it lives.
    unsafe { &*g.group.get() }
}

/// Whether the goroutine, which has not begun, may begin on this M.
pub fn may_begin(m: MRef, g: GRef) -> bool {
    places_of(m).any(|place| ptr::eq(group_of(place), g.group.get()))
}

/// Makes the goroutine begin in this group.
pub fn spawned(g: GRef, group: &'static Group) {
    let rt = rt();
    if group.runtime.load(Ordering::Acquire) != rt.number {
        ALL.with(|_| group.renew(rt));
    }
    group.alive.fetch_add(1, Ordering::Relaxed);
    g.group.set(group);
    g.set_flag(flags::GROUP, true);
}

/// Takes a goroutine that has ended out of its group, if it has a group.
pub fn member_ended(g: GRef) {
    if let Some(group) = (!g.group.get().is_null()).then(|| of_g(g)) {
        g.group.set(ptr::null());
        // Release: pairs with the Acquire in `free`.
        group.alive.fetch_sub(1, Ordering::Release);
    }
}

/// Puts a new goroutine where a member finds it: into the queue of the caller's M, if that M is the
/// only member; else into a global queue, from which a member takes the goroutine, or another M
/// takes it and passes it on to a member.
pub fn submit(m: Option<MRef>, g: GRef) {
    let task = Task::goroutine(g);
    match m {
        Some(m) if of_g(g).places.len() == 1 && may_begin(m, g) => m.pinned.push(task),
        _ => ready::push_global(task, priority::NORMAL),
    }
}

/// Passes a goroutine that has not begun, and whose group `m` is no member of, on to a member, with
/// the P of `m` if that member sleeps.
pub fn pass_on(m: MRef, g: GRef) {
    let (rt, group, task) = (rt(), of_g(g), Task::goroutine(g));
    let idle = group.members().find(|&other| take_idle(rt, other));
    if let Some(member) = idle.or_else(|| group.another(rt, m)) {
        return start::give(member, Some(release_p(m)), Some(task), false);
    }
    // Pushed to the shortest queue, with the lock held: so the member doesn't leave before it has
    // the task.
    let pushed = ALL.with(|_| match group.members().min_by_key(|m| m.pinned.len()) {
        Some(member) => {
            member.pinned.push(task);
            Ok(member)
        }
        None => Err(task),
    });
    match pushed {
        // If that member is awake, another member that sleeps gets the P and takes the task over: a
        // member that has gone to sleep meanwhile, or a locked member. A member that is about to
        // sleep fences, which pairs with the fence in `wake_owner`, and then finds the task
        // (`has_work`).
        Ok(member) => {
            let _ = bound::wake_owner(m, member)
                || group.others(member).any(|other| bound::wake_owner(m, other));
        }
        Err(task) if group.is_for_runners_only() => group.wait_for_runner(task),
        // At the limit of threads there may never be a thread other than this one.
        Err(task) if group.add_current(m) => m.stash.set(Some(task)),
        Err(task) => rt.aside.wait(task),
    }
}

/// Takes an M out of its pool, if it sleeps there.
#[must_use]
fn take_idle(rt: &Runtime, m: MRef) -> bool {
    rt.nodes[m.node.seen()].take_idle_m(m)
}

/// Takes a goroutine that waits to begin on another member of the M's groups. For a member without
/// work, and now and then for a busy member, because the other member may be in a call for long.
/// The caller may hold an object's lock.
#[must_use]
pub fn steal(m: MRef) -> Option<Task> {
    groups_to_serve(m).find_map(|group| group.steal(m))
}

/// Whether a goroutine waits to begin on another member of the M's groups.
pub fn has_work(m: MRef) -> bool {
    let has = |group: &Group| group.others(m).any(|other| other.pinned.has(is_unbegun));
    groups_to_serve(m).any(has)
}

/// The M's groups. None for an M that is locked to a goroutine which is not pinned: nothing else
/// should run on that thread.
fn groups_to_serve(m: MRef) -> impl Iterator<Item = &'static Group> {
    let serves = !m.is_locked() || bound::has_pinned(m);
    places_of(m).take_while(move |_| serves).map(group_of)
}

/// The M's places in groups. Called by the M itself, or with the lock held: only the M itself
/// leaves a group that is not freed, so the places that it is reading get no other member.
fn places_of(m: MRef) -> impl Iterator<Item = &'static Place> {
    iter::successors(place_at(&m.places), |place| place_at(&place.next))
}

/// The place to which a link of an M's list points.
fn place_at(link: &AtomicPtr<Place>) -> Option<&'static Place> {
    // Acquire: pairs with the Release in `take_place`.
    // SAFETY: `link` is null or leads to a place, whose group stays until the runtime ends.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

/// The group that has this place of an M.
fn group_of(place: &Place) -> &'static Group {
    // SAFETY: `group` was set when the group was made, and the group stays until the M's runtime
    // ends.
    unsafe { &*place.group.load(Ordering::Relaxed) }
}

fn is_unbegun(task: &Task) -> bool {
    matches!(task.kind(), TaskKind::Goroutine(g) if g.has(flags::GROUP))
}

impl Group {
    fn members(&self) -> impl Iterator<Item = MRef> {
        let ms = self.places.iter().map(|place| place.member.load(Ordering::Acquire));
        // SAFETY: `member` is an M, which stays mapped until shutdown, or null.
        ms.filter(|m| !m.is_null()).map(|m| unsafe { MRef::from_ptr(m) })
    }

    /// Whether the members are this runtime's. `ALL`'s lock is held.
    fn is_of(&self, rt: &Runtime) -> bool {
        self.runtime.load(Ordering::Relaxed) == rt.number
    }

    /// Whether the group was last used with another runtime. `ALL`'s lock is held.
    fn is_of_another(&self, rt: &Runtime) -> bool {
        self.runtime.load(Ordering::Relaxed) != 0 && !self.is_of(rt)
    }

    /// Whether goroutines wait for a thread to call `gs_run`. `ALL`'s lock is held.
    fn waits_for_runner(&self, rt: &Runtime) -> bool {
        self.is_of(rt) && !self.waiting.is_empty() && self.members().next().is_none()
    }

    /// Whether a thread in `gs_run` could join. `ALL`'s lock is held.
    fn has_place_for_runner(&self, rt: &Runtime) -> bool {
        self.runners > 0 && (!self.is_of(rt) || (0..self.runners).any(|n| self.is_free(n)))
    }

    /// Forgets members that belong to a runtime that has ended, or to a fork's parent. `ALL`'s lock
    /// is held.
    fn renew(&self, rt: &Runtime) {
        if self.is_of(rt) {
            return;
        }
        self.clear_places();
        self.alive.store(0, Ordering::Relaxed);
        // SAFETY: no goroutine of that runtime is left, and goroutines of this runtime come only
        // after this.
        unsafe { self.waiting.forget() };
        // Release: pairs with the Acquire in `spawned`.
        self.runtime.store(rt.number, Ordering::Release);
    }

    /// Makes the members ordinary M's again. Returns those that are in `gs_run`.
    fn dismiss(&self, rt: &Runtime) -> Vec<MRef> {
        self.renew(rt);
        let members: Vec<MRef> = self.members().collect();
        for &m in &members {
            let links = iter::once(&m.places).chain(places_of(m).map(|place| &place.next));
            for link in links {
                if let Some(place) = place_at(link)
                    && ptr::eq(group_of(place), self)
                {
                    link.store(place.next.load(Ordering::Relaxed), Ordering::Release);
                    break;
                }
            }
        }
        self.clear_places();
        members.into_iter().filter(|m| m.is_runner()).collect()
    }

    fn clear_places(&self) {
        self.places.iter().for_each(|p| p.member.store(ptr::null_mut(), Ordering::Relaxed));
    }

    fn is_free(&self, place: usize) -> bool {
        self.places[place].member.load(Ordering::Relaxed).is_null()
    }

    /// Gives the M, a thread in `gs_run`, a free place for such a thread. Returns false if there is
    /// none. `ALL`'s lock is held.
    fn join_as_runner(&self, m: MRef) -> bool {
        (0..self.runners).any(|place| self.take_place(place, m))
    }

    /// Gives the M this place. Returns false if the place is not free. Only a thread in `gs_run`
    /// may be in another group already. `ALL`'s lock is held.
    #[must_use]
    fn take_place(&self, place: usize, m: MRef) -> bool {
        let is_free = self.is_free(place);
        if is_free {
            let place = &self.places[place];
            place.next.store(m.places.load(Ordering::Relaxed), Ordering::Relaxed);
            // Release: pairs with the Acquire in `places_of`.
            m.places.store(ptr::from_ref(place).cast_mut(), Ordering::Release);
            // Release: pairs with the Acquire in `members`.
            place.member.store(m.as_ptr(), Ordering::Release);
        }
        is_free
    }

    /// Places for threads of the library's own.
    fn own_places(&self) -> core::ops::Range<usize> {
        self.runners..self.places.len()
    }

    fn is_for_runners_only(&self) -> bool {
        self.own_places().is_empty()
    }

    /// Adds a member, which sleeps and is out of its pool. `None` if no place is free, or there is
    /// no thread.
    fn another(&self, rt: &Runtime, m: MRef) -> Option<MRef> {
        if !self.own_places().any(|place| self.is_free(place)) {
            return None;
        }
        let is_fit = |m: MRef| !m.is_runner() && !m.is_member();
        let node = m.p().node as usize;
        let idle = rt.nodes_from(node).find_map(|n: &Node| n.pop_idle_m_that(is_fit));
        let new = idle.or_else(|| start::new_m(rt, node))?;
        let joined = ALL.with(|_| self.own_places().any(|place| self.take_place(place, new)));
        if !joined {
            // Other threads have taken the places. The new M looks for work and goes to sleep.
            start::give(new, None, None, false);
        }
        joined.then_some(new)
    }

    /// Makes this M, which runs, a member. Returns false if it can't be a member, or no place is
    /// free.
    fn add_current(&self, m: MRef) -> bool {
        let is_fit = !m.is_runner() && !m.is_locked();
        is_fit
            && ALL.with(|_| {
                !m.is_member() && self.own_places().any(|place| self.take_place(place, m))
            })
    }

    /// Makes threads that are in `gs_run` already, but in no group, members while there are places
    /// for such threads. `ALL`'s lock is held.
    fn add_runners(&self, rt: &Runtime) {
        if self.has_place_for_runner(rt) {
            for m in rt.ms_that(|m| is_in_run(m) && !m.is_member()) {
                if !self.join_as_runner(m) {
                    break;
                }
            }
        }
    }

    /// Makes a thread that is in `gs_run` a member, though it is in other groups. Returns false if
    /// there is none. `ALL`'s lock is held.
    fn borrow_runner(&self, rt: &Runtime) -> bool {
        let runners = rt.ms_that(is_in_run).into_iter();
        let least_used = runners.min_by_key(|&m| places_of(m).count());
        least_used.is_some_and(|m| self.join_as_runner(m))
    }

    /// Queues the tasks that have waited for a thread of `gs_run`: the group has such a thread now.
    fn wake_waiting(&self) {
        while let Some(task) = self.waiting.pop() {
            ready::push_global(task, priority::NORMAL);
        }
    }

    /// Makes a task of a group without members wait until a thread calls `gs_run`. A thread that is
    /// in `gs_run` already becomes a member at once.
    fn wait_for_runner(&self, task: Task) {
        self.waiting.push(task);
        let has_come = ALL.with(|_| self.members().next().is_some() || self.borrow_runner(rt()));
        if has_come {
            self.wake_waiting();
        }
    }

    /// The members other than `m`.
    fn others(&self, m: MRef) -> impl Iterator<Item = MRef> {
        self.members().filter(move |&other| other != m)
    }

    /// Takes a goroutine that waits to begin on another member: see [`steal`].
    fn steal(&self, m: MRef) -> Option<Task> {
        self.others(m).find_map(|other| other.pinned.pop_that(is_unbegun))
    }
}

/// Makes a goroutine that begins on a member an ordinary pinned goroutine.
pub fn begun(g: GRef) {
    g.set_flag(flags::GROUP, false);
}

/// Whether the goroutine has not begun yet, and this M isn't a member that may begin it.
pub fn is_elsewhere(m: MRef, g: GRef) -> bool {
    g.has(flags::GROUP) && !may_begin(m, g)
}
