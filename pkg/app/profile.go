package app

import (
	"fmt"
	"net/http"
	"net/http/pprof"
)

// maxProfiles is how many connections the port of profiles has.
const maxProfiles = 8

// validateProfile checks where profiles are served. Profiles show the names of pods, and take as long as the client
// says. So they are for clients on this host only.
func (o *Options) validateProfile() error {
	if err := validateAddress("--profile-address", o.ProfileAddress); err != nil {
		return err
	}
	if o.ProfileAddress != "" && !isLocal(o.ProfileAddress) {
		return fmt.Errorf("--profile-address %s is not loopback: profiles tell what is in the server's memory to whoever "+
			"asks; give an address such as 127.0.0.1:23461, and reach it by kubectl port-forward", o.ProfileAddress)
	}
	return nil
}

// buildProfile sets up the listener of profiles.
func (a *App) buildProfile() {
	if a.options.ProfileAddress == "" {
		return
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /debug/pprof/", pprof.Index)
	routes.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	routes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	routes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	routes.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	profile := a.listenOn(port{"profiles", "profileAddress", a.options.ProfileAddress, "--profile-address"},
		notForBrowsers(a.options.HostNames, routes), maxProfiles)
	// a profile takes as long as its reader says
	profile.server.WriteTimeout = 0
	profile.server.RegisterOnShutdown(func() { _ = profile.server.Close() }) // and a stop does not wait for it
}
