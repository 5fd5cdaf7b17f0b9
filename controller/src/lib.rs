//! The central controller: watch, store, translate, push, report.
