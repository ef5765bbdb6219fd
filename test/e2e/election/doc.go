// Package election shows on a real API server that one server decides at any time, and that
// the API server refuses what an earlier one sends.
package election
