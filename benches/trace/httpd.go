// httpd MODE PORT DIR FILE: net/http's file server, with Go's tracer. MODE: off, trace, flight.
package main

import (
	"log"
	"net/http"
	"os"
	"runtime/trace"
	"time"
)

func main() {
	mode, port, dir, file := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	switch mode {
	case "trace":
		out, err := os.Create(file)
		if err != nil {
			log.Fatal(err)
		}
		if err = trace.Start(out); err != nil {
			log.Fatal(err)
		}
	case "flight":
		recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 10 * time.Second})
		if err := recorder.Start(); err != nil {
			log.Fatal(err)
		}
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, http.FileServer(http.Dir(dir))))
}
