//! `scalwsctl lint`: reads a folder and says what would become of each object, without starting anything.
