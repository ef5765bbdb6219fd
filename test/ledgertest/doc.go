// Package ledgertest has what the ledger is tested with.
//
//   - Explorer does random things to a ledger and checks its laws: what must hold whatever happened, and what no
//     decision may do. They are written from the rules in the ledger's package comment.
//   - Mirror rebuilds the account from the ledger's events alone, as a watcher would, and counts it anew.
//   - RunTranscript reads the small language of pkg/ledger/testdata, which has each rule by example.
//
// Who changes a rule of the ledger changes its transcript, and the law where there is one, from the rule and not from
// the ledger's new code.
package ledgertest
