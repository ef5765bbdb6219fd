// Package ui has a browser look at the live page: of a real server on a real control plane, and of a ledger with
// 5,000 nodes and 150,000 pods.
//
// The browser is Debian's chromium, driven by web/e2e/driver.mjs, one command after the other. Where there is no node,
// no browser, or no web/node_modules (make web-tools gets them), the tests say so in one line, and nothing is tested.
//
// large_test.go measures, and belongs to `make soak`.
//
// PICTURES=folder has the pictures of the documents taken.
package ui
