// Package apiwrite reports what became of a write to the API server: a Binding, or a Reservation object. An answer may
// be lost, and the write be carried out nevertheless, at once or later. Code that gives capacity away or takes it back
// has to know, so a Write is followed until its fate is known.
//
// What may be touched: Of is the only place that classifies the API server's answers. It sends nothing, and remembers
// nothing but what a Write says.
package apiwrite
