// Package check breaks a cluster in one way after another and has kubectl reserve check find it.
package check
