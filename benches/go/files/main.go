// Command gofiles is Go's side of `make bench-servers`: net/http's file server
// for one directory, with its defaults.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gofiles PORT DIR")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, http.FileServer(http.Dir(os.Args[2]))))
}
