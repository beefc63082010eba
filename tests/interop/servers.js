'use strict';
// A container whose connection goes on over a list of addresses, as rhea's users write it.

function say(event) {
    process.stdout.write(JSON.stringify(event) + '\n');
}

// `addresses` is host:port,host:port...
function connect(rhea, addresses) {
    const servers = addresses.split(',').map(address => {
        const [host, port] = address.split(':');
        return {transport: 'tcp', host: host, port: Number(port)};
    });
    let tries = 0;
    const container = rhea.create_container();
    container.on('connection_open', context => {
        say({event: 'open', port: servers[(tries - 1) % servers.length].port});
    });
    container.on('connection_error', context => say({event: 'error', error: String(context.error)}));
    const connection = container.connect({
        connection_details: () => servers[tries++ % servers.length],
        idle_time_out: 2000,
    });
    return {container, connection};
}

module.exports = {connect, say};
