// Package gates is the ledger behind its gates: the only way to a decision.
//
// A gate is a rule that may refuse something capacity before the ledger is asked whether there is any. GatedLedger has
// the methods of the ledger that decide, and asks the gates first. Exchange alone does not ask them: it goes on with
// something that was given before. Every package that gives out capacity has a GatedLedger, and all others have the
// ledger's Reader or its Observer alone. So a new rule about who may have what goes into Gates.Refuse, and counts on
// every path.
//
// Error is the error of all of them for a pod that is not bound.
//
// What may be touched: gates are asked in the hot path of every decision, under no lock, by many at once. They look at
// the policy and at what is asked; they do not read from the API server, and change nothing.
package gates
