// Package ledgermodel has what the ledger is tested with.
//
//   - Model is a second, naive ledger: plain lists and maps, every sum counted
//     anew each time it is asked for. It is written from the rules in the
//     ledger's package comment and shares none of its code, so that a mistake
//     in one shows as a difference to the other.
//   - Mirror rebuilds the account from the ledger's events alone, as a watcher
//     would.
//   - Pair drives a Ledger, the Model and a Mirror through the same operations
//     and compares everything they can be asked after each.
//   - RunTranscript reads the small language of pkg/ledger/testdata.
//
// Who changes a rule of the ledger changes the Model too, from the rule and not
// from the ledger's new code.
package ledgermodel
